// Counters of overlap on a rank since the start, as copies for readers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compute/overlap/planner.h"

namespace hocket {

struct OverlapStats {
  // Seconds of steps in which any rank has rows. All except hidden_seconds add up to step_seconds
  // within 1 %.
  double step_seconds = 0;
  std::array<double, kNumBooked> compute_seconds{};  // indexed by Op
  double other_seconds = 0, exposed_seconds = 0, waiting_seconds = 0, idle_seconds = 0;
  double hidden_seconds = 0;                    // on the wire while this rank computed
  std::array<uint64_t, 3> steps{};              // steps played, indexed by PlanKind
  uint64_t trial_steps = 0, unknown_plans = 0;  // unknown plans are played as `none`
  double half_imbalance = 0;                    // slower half / mean in the last two-batch step
  std::array<std::string, kNumPhases> plan;     // plan of the last step of each phase
  bool exact_arrival = false;                   // if false, hidden_seconds is an estimate

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
  };
  std::vector<RankEntry> ranks;         // ranks of this process
  std::optional<PlannerState> planner;  // state of rank 0's planner; nullopt in other processes
};

}  // namespace hocket
