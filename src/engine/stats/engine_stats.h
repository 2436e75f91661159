// Counters and gauges of a rank, and of all ranks together, as copies.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/named_counter.h"
#include "engine/stats/cache_tier_stats.h"
#include "engine/stats/expert_move_stats.h"
#include "engine/stats/expert_stats.h"
#include "engine/stats/grammar_stats.h"
#include "engine/stats/overlap_stats.h"
#include "engine/stats/step_log.h"
#include "engine/stats/step_position.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

// Requests by how they ended.
struct EndCounters {
  uint64_t num_requests_finished = 0, num_requests_aborted = 0, num_requests_failed = 0;
};

inline constexpr auto kEndCounters =
    std::to_array<NamedCounter<EndCounters>>({{.value = &EndCounters::num_requests_finished,
                                               .name = "num_requests_total",
                                               .help = "Requests that ended well",
                                               .key = "finished_total"},
                                              {.value = &EndCounters::num_requests_aborted,
                                               .name = "num_aborted_requests_total",
                                               .help = "Requests that were aborted",
                                               .key = "aborted_total"},
                                              {.value = &EndCounters::num_requests_failed,
                                               .name = "num_failed_requests_total",
                                               .help = "Requests that ended in an error",
                                               .key = "failed_total"}});
static_assert(names_each_member(kEndCounters));

struct StepTimeCounters {
  double step_seconds_total = 0;
  // Seconds of all steps spent waiting for other ranks' rows, and beside those for agreements.
  double exchange_wait_seconds_total = 0, agreement_wait_seconds_total = 0;
};

inline constexpr auto kStepTimeCounters = std::to_array<NamedCounter<StepTimeCounters>>(
    {{&StepTimeCounters::step_seconds_total, "step_seconds_total",
      "Length of all steps, added over the ranks of this process"},
     {&StepTimeCounters::exchange_wait_seconds_total, "exchange_wait_seconds_total",
      "Part of the length of steps: waiting for rows of other ranks, or for their results"},
     {&StepTimeCounters::agreement_wait_seconds_total, "agreement_wait_seconds_total",
      "Time between steps, waiting for what other ranks say of the next one"}});
static_assert(names_each_member(kStepTimeCounters));

struct RankStats : EndCounters, StepTimeCounters {
  SchedulerStats scheduler;
  StepCounts steps;
  // The part of scheduler.cached_tokens_total that was read from there for the request.
  PerTier<uint64_t> fetched_tokens_total{};
  // Tokens/s over the last second of steps, of answers and of prompts; 0 when idle.
  double gen_throughput = 0, input_throughput = 0;
  double last_step_seconds = 0;
  std::optional<CacheTierStats> tier;    // nullopt without a second tier (has_cache_tier)
  std::optional<ExpertMoveStats> moves;  // nullopt if experts never move
  OverlapStats overlap;                  // divides the seconds of steps by cause
  double seconds_since_last_step = 0;    // 0 when idle
  bool busy = false;                     // true if there is work
  StepPosition position;                 // action that the rank is in
};

// Counters of all ranks: sums, step and wait seconds too. Other times, shares and ratios are the
// largest of any rank; token_usage is the share of all pages together.
struct EngineStats : RankStats {
  std::vector<RankStats> ranks;
  std::optional<ExpertBalance> experts;  // nullopt for a dense model
  std::optional<GrammarStats> grammars;  // nullopt if only free text can be asked for
  std::optional<Error> lost;             // set if no request is taken because a rank is lost
  // Says which ranks are missing while the others serve, "2 of 3 ranks serve: ..."; empty: none.
  std::string missing_ranks;

  // Returns the stats of each rank; an engine without a list of ranks is one rank.
  std::span<const RankStats> per_rank() const {
    const RankStats& whole = *this;
    return ranks.empty() ? std::span(&whole, 1) : std::span(ranks);
  }
};

EngineStats add_up(std::vector<RankStats> ranks);

}  // namespace hocket
