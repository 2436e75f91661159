// Counters of overlap on a rank since the start, as copies for readers. A new counter is a member
// and its row, and the code that counts it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compute/overlap/planner.h"
#include "core/named_counter.h"
#include "engine/stats/expert_move_stats.h"

namespace hocket {

// Seconds of steps in which any rank has rows. All except hidden_seconds, with
// OverlapStats::compute_seconds, add up to step_seconds within 1 %.
struct OverlapTimes {
  double step_seconds = 0;
  double other_seconds = 0, exposed_seconds = 0, waiting_seconds = 0, idle_seconds = 0;
  double hidden_seconds = 0;  // on the wire while this rank computed
};

inline constexpr const char* kComputeSecondsName = "step_compute_seconds_total";
inline constexpr const char* kComputeSecondsHelp =
    "Computed in steps, by operation of a layer; other: embedding, head, sampling, engine";
// At /metrics the times of operations precede that of `other`, since they are one family.
inline constexpr auto kOverlapTimes = std::to_array<NamedCounter<OverlapTimes>>(
    {{.value = &OverlapTimes::step_seconds, .name = nullptr, .help = nullptr, .key = "step"},
     {.value = &OverlapTimes::other_seconds,
      .name = kComputeSecondsName,
      .help = kComputeSecondsHelp,
      .label = "op",
      .label_value = "other",
      .key = "other",
      .old_key = "beside"},
     {.value = &OverlapTimes::exposed_seconds,
      .name = "exchange_exposed_seconds_total",
      .help = "Transfer time for which this rank waited: rows were under way",
      .key = "exposed"},
     {.value = &OverlapTimes::waiting_seconds,
      .name = "rank_waiting_seconds_total",
      .help = "Waited for ranks that had not sent yet",
      .key = "waiting"},
     {.value = &OverlapTimes::idle_seconds,
      .name = "step_idle_seconds_total",
      .help = "Time of steps that is neither computing nor waiting nor transfer",
      .key = "idle"},
     {.value = &OverlapTimes::hidden_seconds,
      .name = "exchange_hidden_seconds_total",
      .help = "Transfer time during which this rank computed; an estimate where the network does "
              "not tell when the last byte came",
      .key = "hidden"}});
static_assert(names_each_member(kOverlapTimes));

struct OverlapCounters {
  uint64_t trial_steps = 0, unknown_plans = 0;  // unknown plans are played as `none`
};

inline constexpr auto kOverlapCounters = std::to_array<NamedCounter<OverlapCounters>>(
    {{.value = &OverlapCounters::trial_steps,
      .name = "overlap_trial_steps_total",
      .help = "Engine steps that tried another plan than the usual one",
      .key = "trial_steps",
      .old_name = "overlap_shadow_steps_total",
      .old_key = "shadow_steps"},
     {&OverlapCounters::unknown_plans, "overlap_plan_refused_total",
      "Plans of rank 0 played as none instead", "reason", "unknown", "unknown_plans"}});
static_assert(names_each_member(kOverlapCounters));

struct OverlapStats : OverlapTimes, OverlapCounters {
  std::array<double, kNumBooked> compute_seconds{};  // indexed by Op
  std::array<uint64_t, 3> steps{};                   // steps played, indexed by PlanKind
  double half_imbalance = 0;                 // slower half / mean in the last two-batch step
  std::array<std::string, kNumPhases> plan;  // plan of the last step of each phase
  bool exact_arrival = false;                // if false, hidden_seconds is an estimate

  double hidden_share() const {
    const double all = hidden_seconds + exposed_seconds;
    return all > 0 ? hidden_seconds / all : 0;
  }
};

// The answer to GET /overlap.
struct OverlapView {
  std::string choice;  // --overlap as it counts: "auto", "none", "two-batch", "four-phase"
  struct RankEntry {
    int rank = 0;
    OverlapStats stats;
    std::optional<ExpertMoveStats> moves = std::nullopt;  // nullopt if experts never move
  };
  std::vector<RankEntry> ranks;         // ranks of this process
  std::optional<PlannerState> planner;  // state of rank 0's planner; nullopt in other processes
};

}  // namespace hocket
