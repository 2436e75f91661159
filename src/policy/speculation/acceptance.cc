#include "policy/speculation/acceptance.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "policy/speculation/gate_tuning.h"

namespace hocket {

void Acceptance::note(int seat, int kind, int num_drafts, int num_held) {
  HOCKET_CHECK(num_held <= num_drafts);
  const int num_tried = std::min({num_held + 1, num_drafts, kMaxDrafts});
  const auto row = static_cast<size_t>(kind);
  for (size_t i = 0; i < static_cast<size_t>(num_tried); ++i) {
    const float held = static_cast<int>(i) < num_held ? 1.0F : 0.0F;
    const auto add = [held](Tally& tally, double decay) {
      tally.tried = static_cast<float>(tally.tried * decay) + 1;
      tally.held = static_cast<float>(tally.held * decay) + held;
    };
    add(group_[row][i], kGate.group_decay);
    add(own_[static_cast<size_t>(seat)][row][i], kGate.request_decay);
  }
}

// A position of which little is known is expected to be like the one before it.
Acceptance::Share Acceptance::group(int kind, int position) const {
  Share share{kGate.first_acceptance, kGate.first_weight};
  for (int i = 0; i <= position; ++i) {
    const Tally& at = tally(kind, i);
    const double before = i == 0 ? kGate.first_weight : kGate.before_weight;
    share.weight = at.tried + std::min(before, share.weight);
    const double guess = share.weight - at.tried;
    share.share = (at.held + guess * share.share) / share.weight;
  }
  return share;
}

double Acceptance::of(int seat, int kind, int position) const {
  const Tally& own =
      own_[static_cast<size_t>(seat)][static_cast<size_t>(kind)][static_cast<size_t>(position)];
  const double share = group(kind, position).share;
  return (own.held + kGate.group_weight * share) / (own.tried + kGate.group_weight);
}

double Acceptance::doubt(int kind, int position) const {
  const Share known = group(kind, position);
  return kGate.trial_errors * std::sqrt(known.share * (1 - known.share) / (known.weight + 1));
}

}  // namespace hocket
