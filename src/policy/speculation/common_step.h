// A step that several ranks compute together, each the rows of its own answers. A gate knows its
// own drafts, and expects the other ranks to have as many for each of their answers; while it has
// drafts it sees how far they really do. Owner: SpeculationGate. Thread: engine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "policy/speculation/gate_tuning.h"

namespace hocket {

// The answers of a step: those of this rank, which count as one at least, and of the others.
struct CommonAnswers {
  CommonAnswers() = default;
  CommonAnswers(int num_own, int num_others) : own(std::max(1, num_own)), others(num_others) {}

  int all() const { return own + others; }
  bool are_shared() const { return others > 0; }
  // The answers of the others are expected to be as long as those of this rank.
  int64_t all_keys(int64_t total_keys) const { return total_keys * all() / own; }

  int own = 1, others = 0;
};

class CommonStep {
 public:
  // Begins the step that is offered. num_other_drafts: those of the others in the step before.
  void begin(CommonAnswers answers, int num_other_drafts) {
    answers_ = answers;
    num_other_drafts_ = num_other_drafts;
  }
  const CommonAnswers& answers() const { return answers_; }
  bool others_drafted() const { return num_other_drafts_ > 0; }

  // Returns the drafts that are expected of all ranks if this one has num_drafts.
  double all_drafts(int num_drafts) const {
    return num_drafts * (1 + others_share_ * answers_.others / answers_.own);
  }
  // Returns this rank's part of num_all drafts of all ranks.
  int own_drafts(int num_all) const {
    return static_cast<int>(std::lround(num_all / all_drafts(1)));
  }

  // Notes which drafts the ranks had in a step with these answers. Ranks try numbers one after
  // another, so for a while others have none where all soon will; and while this rank has none, it
  // slowly returns to the expectation that the others draft as it does.
  void note(CommonAnswers answers, int num_drafts, int num_other_drafts) {
    if (!answers.are_shared()) return;
    if (num_drafts <= 0) {
      others_share_ += kGate.others_recover_rate * (1 - others_share_);
      return;
    }
    const double share =
        static_cast<double>(num_other_drafts) * answers.own / num_drafts / answers.others;
    others_share_ += kGate.others_rate * (std::min(share, 1.0) - others_share_);
  }

 private:
  CommonAnswers answers_;
  int num_other_drafts_ = 0;
  // Drafts of the others, as a share of those that they would have if they drafted as this rank.
  double others_share_ = 1;
};

}  // namespace hocket
