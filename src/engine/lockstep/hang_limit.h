// Finds from the times of steps how long one may take before its rank counts as hung. Owner:
// Lockstep. Thread: engine.
#pragma once

#include <array>
#include <optional>

#include "base/clock.h"
#include "compute/overlap/stage_times.h"

namespace hocket {

class HangLimit {
 public:
  void begin(TimePoint now) { begin_ = now; }
  // Notes the time of the step that began last, if it is not noted yet.
  void end(Phase phase, int rows, TimePoint now);
  void note(Phase phase, int rows, Duration took) {
    last_.at(index_of(phase)) = {.rows = rows, .took = took};
  }
  void forget_begin() { begin_.reset(); }
  // Returns the limit of a step of this phase with these rows, on the rank that has most.
  Duration hung_after(Phase phase, int rows) const;

 private:
  struct Step {
    int rows = 0;
    Duration took{};
  };
  std::optional<TimePoint> begin_;                    // begin of the running step, if it has rows
  std::array<std::optional<Step>, kNumPhases> last_;  // by phase
};

}  // namespace hocket
