// Compares the time of steps during which experts are loaded and move with that of like steps
// before: what steps lose because of a move. Like steps have the same phase and about as many rows.
// Owner: Rebalance. Thread: engine. Allocates nothing.
#pragma once

#include <array>
#include <optional>

#include "base/running_median.h"
#include "compute/overlap/step_report.h"

namespace hocket {

class MovingSteps {
 public:
  static constexpr int kMinLikeSteps = 8;  // with fewer of them a step is not compared

  // The time of a step while experts move, and the median of the last like steps before.
  struct Comparison {
    double seconds = 0, usual_seconds = 0;
  };
  // Notes a step, by the slowest rank's report (slowest_of()). is_moving: experts move now; as the
  // report is of the step before, one more counts as moving behind the last. Returns nullopt for a
  // step in which no expert moves, and for one that is not compared.
  std::optional<Comparison> note(const StepReport& slowest, bool is_moving);

 private:
  static constexpr int kSizesOfAnOctave = 4, kNumSizes = 24 * kSizesOfAnOctave;
  static constexpr int kMedianOf = 31;  // steps
  static size_t size_of(const StepReport& step);

  std::array<std::array<RunningMedian<kMedianOf>, kNumSizes>, kNumPhases> usual_us_{};
  bool was_moving_ = false;
};

}  // namespace hocket
