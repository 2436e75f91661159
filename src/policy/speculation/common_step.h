// A step that several ranks compute together, each the rows of its own answers. A gate knows its
// own drafts, and expects the other ranks to have as many for each of their answers; while it has
// drafts it sees how far they really do. Owner: SpeculationGate. Thread: engine.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "policy/speculation/gate_tuning.h"

namespace hocket {

class CommonStep {
 public:
  // Answers of this rank, which count as one at least, and of the others; drafts that the others
  // had in the step before.
  void begin(int num_answers, int num_other_answers, int num_other_drafts) {
    num_own_ = std::max(1, num_answers);
    num_others_ = num_other_answers;
    num_other_drafts_ = num_other_drafts;
  }
  int num_answers() const { return num_own_ + num_others_; }
  bool is_shared() const { return num_others_ > 0; }
  bool others_drafted() const { return num_other_drafts_ > 0; }

  // Returns the drafts that are expected of all ranks if this one has num_drafts.
  double all_drafts(int num_drafts) const {
    return num_drafts * (1 + follow_ * num_others_ / num_own_);
  }
  // Returns this rank's part of num_all drafts of all ranks.
  int own_drafts(int num_all) const {
    return static_cast<int>(std::lround(num_all / all_drafts(1)));
  }
  // The answers of the others are expected to be as long as those of this rank.
  int64_t all_keys(int64_t total_keys) const { return total_keys * num_answers() / num_own_; }

  // Notes what the ranks had in a step. Ranks try numbers one after another, so for a while others
  // have none where all soon will; and while this rank has none, the others are expected to follow
  // again.
  void note(int num_drafts, int num_other_drafts) {
    if (num_others_ <= 0) return;
    if (num_drafts <= 0) {
      follow_ += kGate.follow_again_rate * (1 - follow_);
      return;
    }
    const double follow =
        static_cast<double>(num_other_drafts) * num_own_ / num_drafts / num_others_;
    follow_ += kGate.follow_rate * (std::min(follow, 1.0) - follow_);
  }

 private:
  int num_own_ = 1, num_others_ = 0, num_other_drafts_ = 0;
  double follow_ = 1;  // drafts of the others, as a share of those expected if they do as this rank
};

}  // namespace hocket
