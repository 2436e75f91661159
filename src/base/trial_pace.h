// Paces trials: steps played by another plan, or with another number of drafts, than the chosen
// one, only to measure it. A trial is a few steps:
//
//   may_begin(), begin(), proposes()..    T T T T u u ..     T: of the trial, u: as usual
//   note()                                  T T T T u u ..   the first T is not counted, because
//                                                            its memory is cold
//
// Steps that show nothing are not noted: a trial continues behind them, and postpone() takes back a
// proposal for one of them.
//
// While trials may be frequent, the next one begins kGap notes after the last; otherwise they are
// so rare that kShare of all steps belong to them. Owner: the planner or the gate. Thread: its
// owner's.
#pragma once

#include <algorithm>

namespace hocket {

class TrialPace {
 public:
  static constexpr int kSteps = 4;        // steps of a trial
  static constexpr int kNotes = 8;        // notes after which a trial that is not played ends
  static constexpr int kGap = 2;          // usual steps between two trials
  static constexpr double kShare = 0.01;  // share of steps that are trials once they are rare

  bool may_begin(bool may_be_frequent) const {
    return !under_way() && since_ >= kGap && (may_be_frequent || since_ * kShare >= kSteps);
  }
  // Begins a trial and proposes its first step.
  void begin() { proposals_left_ = kSteps - 1, notes_left_ = kNotes, num_played_ = 0; }
  // True if a step of the trial is still to be proposed; the caller then calls propose().
  bool proposes() const { return proposals_left_ > 0; }
  void propose() { --proposals_left_; }
  // Takes back the last proposal, whose step is not played.
  void postpone() { proposals_left_ += under_way() ? 1 : 0; }
  // Ends the trial: no further step of it is proposed.
  void stop() { proposals_left_ = 0; }
  bool under_way() const { return notes_left_ > 0; }
  // True if no step of the trial was played yet.
  bool is_cold() const { return num_played_ == 0; }
  // Counts a step that was played. is_trial: it belongs to the trial under way.
  void note(bool is_trial) {
    since_ = std::min(since_ + 1, kLong);
    if (!under_way()) return;
    if (is_trial) ++num_played_, since_ = 0;
    if (--notes_left_ == 0 || num_played_ == kSteps) notes_left_ = proposals_left_ = 0;
  }

 private:
  static constexpr int kLong = 1 << 20;

  int proposals_left_ = 0;
  int notes_left_ = 0;  // notes until the trial is given up; 0: none is under way
  int num_played_ = 0;
  int since_ = 0;  // steps since the last trial, up to kLong
};

}  // namespace hocket
