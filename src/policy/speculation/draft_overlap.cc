#include "policy/speculation/draft_overlap.h"

#include <algorithm>
#include <utility>

namespace hocket {

bool DraftOverlap::waits_for_commit() {
  if (plays_drafts()) return true;
  if (++num_overlapped_ < steps_between_looks()) return false;
  num_overlapped_ = 0;
  return true;
}

// The more a look loses, the fewer there are.
int DraftOverlap::steps_between_looks() const {
  if (!may_draft()) return kGate.min_look_steps;
  const double lost = 1 / share() - 1;
  return static_cast<int>(
      std::clamp<double>(lost / kGate.measuring_share, kGate.min_look_steps, kGate.max_look_steps));
}

void DraftOverlap::note_offer(int num_drafts, bool needs_commit) {
  num_empty_ = num_drafts > 0 || needs_commit ? 0 : std::min(num_empty_ + 1, kMaxEmptyOffers);
}

double DraftOverlap::share() const {
  if (known_) return *known_;
  return shares_.count() > 0 ? std::min(1.0, shares_.median()) : 1;
}

double DraftOverlap::factor_of(const SpeculationGate::Step& step, bool overlapped,
                               std::optional<double> share) {
  known_ = share;
  const bool has_rows_of_drafts = step.num_drafts > 0 || step.follows;
  const double us = step.us - step.making_us;
  const bool is_without_drafts = step.is_decode_only && step.num_drafts == 0 && us > 0;
  const bool counts = is_without_drafts && overlapped;
  const double before_us = std::exchange(last_us_, counts ? us : 0);
  const int before = std::exchange(last_answers_, counts ? step.num_answers : 0);
  if (is_without_drafts && !overlapped && before == step.num_answers)
    shares_.add(static_cast<float>(before_us / us));
  return overlapped || has_rows_of_drafts ? 1 : this->share();
}

}  // namespace hocket
