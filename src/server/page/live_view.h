// What the page shows of the server as it works: /live, /steps and /expert_distribution.
// docs/api.md, "What the page reads".   Thread: any.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/watch/engine_stats.h"
#include "engine/watch/recent_steps.h"
#include "server/page/live_texts.h"
#include "server/protocol/json_body.h"

namespace hocket {

inline constexpr size_t kMostLiveTexts = 256;  // in one answer

struct LiveView {
  EngineStats stats;
  int first_rank = 0;             // of those in stats.ranks
  std::vector<RequestAt> places;  // Generator::glance
  std::vector<LiveText> texts;    // the oldest
  size_t num_texts = 0;           // all
  std::vector<EndedText> ended;
  Error not_ready = {};  // where is_ready is false
  bool is_ready = true;
};
Json live_json(const LiveView& view, TimePoint now);

// The newest steps of the ranks here, and the newest of them with its operations. recent: null
// where steps are not booked; the answer says so.
Json steps_json(const RecentSteps* recent);
// `/steps/all`: the same with the operations of all; `/steps/trace`: all as a timeline for
// Perfetto;
// `/steps/17`: step 17 with its operations.
// Errors: not_found (no such step any more, with those there are), invalid_request (steps are not
// booked, with the remedy).
Result<std::string> step_text(const RecentSteps* recent, std::string_view path);

}  // namespace hocket
