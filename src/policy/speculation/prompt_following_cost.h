// The time in which a drafter that makes drafts ahead follows prompts, spread over the steps of
// answers: those with its drafts have to gain it. Both sums weigh recent steps more. Times are in
// steps without drafts. Owner: SpeculationGate. Thread: engine.
#pragma once

#include "policy/speculation/gate_tuning.h"

namespace hocket {

class PromptFollowingCost {
 public:
  void note_prompts(double time) { time_ += time; }
  void note_answers() {
    time_ *= kGate.prompts_decay;
    steps_ = steps_ * kGate.prompts_decay + 1;
  }
  // Returns the part of that time that each step of answers has to gain.
  double of_step() const { return time_ / (steps_ + kGate.prompts_steps); }

 private:
  double time_ = 0, steps_ = 0;
};

}  // namespace hocket
