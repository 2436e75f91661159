// Tries plans in order to measure them. A candidate that could be faster than all others, as far as
// predictions and measurements may be off, is played for a burst of steps (base/trial_pace.h).
// In a new bucket, and after a change of the links, first_trials steps of trials may be frequent.
// Measurements age, so what is not played is tried again. Thread: engine.
#pragma once

#include <optional>

#include "base/trial_pace.h"
#include "compute/overlap/plan_record.h"

namespace hocket {

class Trials {
 public:
  // Returns the plan to try in the next step of this bucket; nothing if the usual one is played.
  std::optional<Plan> next(const PlanRecord& record);
  // True if the step belongs to the burst under way.
  bool is_trial(const StepReport& step) const;
  // True if it is the first of the burst.
  bool is_cold(const StepReport& step) const { return is_trial(step) && pace_.is_cold(); }
  // Counts a step; a burst that is not played is given up after burst_notes reports.
  void note(PlanRecord& record, const StepReport& step);

 private:
  Plan plan_;
  Phase phase_ = Phase::decode;
  TrialPace pace_;
  std::optional<Phase> last_phase_;  // the last step's: only its bursts are likely to be played
};

}  // namespace hocket
