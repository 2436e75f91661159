// Tries plans in order to measure them. A candidate that could be faster than all others, as far as
// predictions and measurements may be off, is played for a burst of steps:
//
//   next()     T T T T u u ..  T     T: the candidate, u: the usual plan
//   note()       T T T T u u ..      the first T is not counted, because its memory is cold
//
// In a new bucket, and after a change of the links, the next burst begins trial_gap reports after
// the last; once first_trials steps are used up, bursts are so rare that trial_share of all steps
// are trials. Measurements age, so what is not played is tried again. Thread: engine.
#pragma once

#include <optional>

#include "compute/overlap/plan_record.h"

namespace hocket {

class Trials {
 public:
  // Returns the plan to try in the next step of this bucket; nothing if the usual one is played.
  std::optional<Plan> next(const PlanRecord& record);
  // True if the step belongs to the burst under way.
  bool is_trial(const StepReport& step) const;
  // True if it is the first of the burst.
  bool is_cold(const StepReport& step) const { return is_trial(step) && num_played_ == 0; }
  // Counts a step; a burst that is not played is given up after burst_notes reports.
  void note(PlanRecord& record, const StepReport& step);

 private:
  Plan plan_;
  Phase phase_ = Phase::decode;
  int proposals_left_ = 0;  // steps of the burst that are still to be proposed
  int notes_left_ = 0;      // reports until the burst is given up; 0: no burst is under way
  int num_played_ = 0;      // steps of this burst that were played
  int since_ = 0;           // steps since the last burst
  std::optional<Phase> last_phase_;  // the last step's: only its bursts are likely to be played
};

}  // namespace hocket
