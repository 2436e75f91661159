// Makes the JSON of the page's live data: /live, /steps and /expert_distribution. docs/api.md
// describes them in "What the page reads".   Thread: any.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/stats/engine_stats.h"
#include "engine/stats/recent_steps.h"
#include "server/http/json_body.h"
#include "server/reply/live_texts.h"

namespace hocket {

inline constexpr std::string_view kStepsPath = "/steps/";  // one step is at /steps/17
inline constexpr size_t kMaxLiveTexts = 256;               // in one answer

struct LiveView {
  EngineStats stats;
  int first_rank = 0;                    // rank of stats.ranks[0]
  std::vector<RequestStatus> snapshots;  // Engine::request_snapshots
  std::vector<LiveText> texts;           // the oldest, at most kMaxLiveTexts
  size_t num_texts = 0;                  // all texts under way
  std::vector<EndedText> ended;
  Error not_ready = {};  // set if is_ready is false
  bool is_ready = true;
};
Json live_json(const LiveView& view, TimePoint now);

// Returns the newest steps of this process's ranks, and the newest step that all of them have with
// its operations.
Json steps_json(const RecentSteps& recent);
// Answers three paths. `/steps/all`: as steps_json, with the operations of all steps.
// `/steps/trace`: all steps as a timeline for Perfetto. `/steps/17`: step 17 with its operations.
// Errors: not_found (the step is not kept; the message lists the ones that are).
Result<std::string> step_text(const RecentSteps& recent, std::string_view path);

}  // namespace hocket
