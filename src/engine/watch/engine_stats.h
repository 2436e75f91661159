// Counters and gauges of now, as copies: of one rank, and of all together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/grammar/grammar_stats.h"
#include "engine/watch/expert_stats.h"
#include "engine/watch/overlap_stats.h"
#include "engine/watch/step_log.h"
#include "engine/watch/step_place.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

struct RankStats {
  SchedulerStats scheduler;
  StepCounts steps;
  uint64_t num_requests_finished = 0, num_requests_aborted = 0, num_requests_failed = 0;
  double gen_throughput = 0;  // tokens/s over the last second of steps; 0 when idle
  double last_step_seconds = 0;
  double step_seconds_total = 0;
  // Of the steps' time, what was spent waiting for other ranks' rows; and beside it, for
  // agreements.
  double exchange_wait_seconds_total = 0, agreement_wait_seconds_total = 0;
  OverlapStats overlap;                // where those seconds went
  double seconds_since_last_step = 0;  // while there is work; 0 when idle
  bool busy = false;                   // there is work
  StepPlace place;                     // now
};

// Of all ranks: sums, also of step and wait seconds; of other times, shares and ratios the largest,
// of token_usage the share of all pages together.
struct EngineStats : RankStats {
  std::vector<RankStats> ranks;
  std::optional<ExpertBalance> experts;  // none: a dense model
  std::optional<GrammarStats> grammars;  // none: only free text can be asked for
  std::optional<Error> lost;             // why no request is taken any more: a rank is gone
};

EngineStats add_up(std::vector<RankStats> ranks);

}  // namespace hocket
