// What overlap did on a rank since the start, as copies for whoever asks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compute/overlap/planner.h"

namespace hocket {

struct OverlapStats {
  // Seconds of steps with rows of anybody; they add up to step_seconds within 1 %.
  double step_seconds = 0;
  std::array<double, kNumOps> compute_seconds{};  // by Op
  double beside_seconds = 0, exposed_seconds = 0, waiting_seconds = 0, idle_seconds = 0;
  double hidden_seconds = 0;                     // on the wire, beside all that
  std::array<uint64_t, 3> steps{};               // by PlanKind, as played
  uint64_t shadow_steps = 0, unknown_plans = 0;  // unknown: played by `none`
  double half_imbalance = 0;                     // of the last two-batch step: slower half / mean
  std::array<std::string, kNumPhases> plan;      // of the last step of each phase
  bool exact_arrival = false;                    // else hidden is an estimate

  double hidden_share() const {
    const double all = hidden_seconds + exposed_seconds;
    return all > 0 ? hidden_seconds / all : 0;
  }
};

// GET /overlap.
struct OverlapView {
  std::string choice;  // --overlap, as it counts: "auto", "none", "two-batch", "four-phase"
  struct OfRank {
    int rank = 0;
    OverlapStats stats;
  };
  std::vector<OfRank> ranks;            // of this process
  std::optional<PlannerState> planner;  // rank 0 plans; none where it is another process
};

}  // namespace hocket
