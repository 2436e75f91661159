// Reconciles drafts with overlapped steps. A step with drafts needs the tokens of the step before,
// so it overlaps neither that one nor the next. This class decides which steps wait for these
// tokens, and measures how much of its time a step without drafts would have saved by overlap.
//
//   o o o o o o o L o o ..   o: overlapped step   L: look, made after the commit of the step before
//
// While no step has drafts, only a few steps, the looks, find out whether any would have some. A
// look and the overlapped step before it show how much overlap saves; a drafter that follows
// requests computes its rows in both, and the time of that is left out. Drafts begin only once that
// is known: steps with drafts do not overlap, so it could not be measured later. Owner: a rank.
// Thread: engine. Nothing allocates.
#pragma once

#include <optional>

#include "base/running_median.h"
#include "policy/speculation/speculation_gate.h"

namespace hocket {

class DraftOverlap {
 public:
  // is_fixed: steps always have drafts, as a flag says.
  explicit DraftOverlap(bool is_fixed) : is_fixed_(is_fixed) {}

  // Returns true if the step under way should be committed before the next one is made, because
  // that one may have drafts. Counts the steps from look to look, so call it once for each step
  // with answers that could overlap.
  bool waits_for_commit();
  // Returns true if the latest steps had drafts, or the next one will.
  bool plays_drafts() const { return is_fixed_ || num_empty_ < kMaxEmptyOffers; }
  // Returns true if steps may have drafts.
  bool may_draft() const { return is_fixed_ || known_ || shares_.count() >= kGate.few_looks; }
  // Notes how many drafts the next step has. needs_commit: SpeculationGate::needs_commit().
  void note_offer(int num_drafts, bool needs_commit);

  // Notes a step that was committed. Returns the factor on the step's time that makes steps without
  // drafts comparable to overlapped ones. share: the time of a step that overlaps, as a share of
  // one that does not; null: steps overlap by a flag, and this measures it.
  double factor_of(const SpeculationGate::Step& step, bool overlapped, std::optional<double> share);

 private:
  // Offers without drafts in a row after which steps overlap again: one more than a trial of no
  // drafts has, behind which drafts continue.
  static constexpr int kMaxEmptyOffers = TrialPace::kSteps + 1;
  double share() const;
  int steps_between_looks() const;

  const bool is_fixed_;
  // Offers without drafts since the last one with some, up to kMaxEmptyOffers.
  int num_empty_ = kMaxEmptyOffers;
  int num_overlapped_ = 0;  // steps since the last look
  std::optional<double> known_ = 1;
  RunningMedian<kGate.remembered> shares_;
  // The last step, if it overlapped and had rows of answers only; else 0. Its time is without that
  // of making drafts.
  int last_answers_ = 0;
  double last_us_ = 0;
};

}  // namespace hocket
