#include "policy/speculation/acceptance.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "policy/speculation/gate_tuning.h"

namespace hocket {
namespace {

// The guess before any draft was verified: as if two had been, and one accepted (Laplace's rule of
// succession).
constexpr double kFirstShare = 0.5, kFirstWeight = 2;

}  // namespace

void Acceptance::note(int seat, int kind, int num_drafts, int num_accepted) {
  HOCKET_CHECK(num_accepted <= num_drafts);
  const int num_tried = std::min({num_accepted + 1, num_drafts, kMaxDrafts});
  const auto row = static_cast<size_t>(kind);
  for (size_t i = 0; i < static_cast<size_t>(num_tried); ++i) {
    const float accepted = static_cast<int>(i) < num_accepted ? 1.0F : 0.0F;
    const auto add = [accepted](Tally& tally, double decay) {
      tally.tried = static_cast<float>(tally.tried * decay) + 1;
      tally.accepted = static_cast<float>(tally.accepted * decay) + accepted;
    };
    add(group_[row][i], kGate.group_decay);
    add(recent_[row][i], kGate.recent_decay);
    add(own_[static_cast<size_t>(seat)][row][i], kGate.request_decay);
    if (has_changed(row, i)) forget_before(row, i);
  }
}

// Returns true if the last drafts were accepted so much more often, or less, that it is no chance.
bool Acceptance::has_changed(size_t row, size_t position) const {
  const Tally &known = group_[row][position], &recent = recent_[row][position];
  if (recent.tried < kGate.min_recent) return false;
  // Without the first guess a share of 0 or 1 would have no deviation.
  const double share = (known.accepted + kFirstShare * kFirstWeight) / (known.tried + kFirstWeight);
  const double deviation = std::sqrt(share * (1 - share) / recent.tried);
  return std::abs(recent.accepted / recent.tried - share) > kGate.change_errors * deviation;
}

// Text of another kind has arrived. The positions behind, and the drafts of each request, were seen
// in the text before.
void Acceptance::forget_before(size_t row, size_t position) {
  group_[row][position] = recent_[row][position];
  for (size_t i = position + 1; i < kMaxDrafts; ++i) group_[row][i] = recent_[row][i] = {};
  for (Tallies& own : own_)
    for (size_t i = position; i < kMaxDrafts; ++i) own[row][i] = {};
}

// A position of which little is known is expected to be like the one before it.
Acceptance::Share Acceptance::group(int kind, int position) const {
  Share share{kFirstShare, kFirstWeight};
  for (int i = 0; i <= position; ++i) {
    const Tally& at = tally(kind, i);
    const double before = i == 0 ? kFirstWeight : kGate.before_weight;
    share.weight = at.tried + std::min(before, share.weight);
    const double guess = share.weight - at.tried;
    share.share = (at.accepted + guess * share.share) / share.weight;
  }
  return share;
}

void Acceptance::copy_to(GateState& state) const {
  for (int kind = 0; kind < kDraftKinds; ++kind)
    for (int position = 0; position < kMaxDrafts; ++position) {
      const auto row = static_cast<size_t>(kind), at = static_cast<size_t>(position);
      state.acceptance[row][at] = group(kind, position).share;
      state.num_seen[row][at] = tally(kind, position).tried;
    }
}

double Acceptance::of(int seat, int kind, int position) const {
  const Tally& own =
      own_[static_cast<size_t>(seat)][static_cast<size_t>(kind)][static_cast<size_t>(position)];
  const double share = group(kind, position).share;
  return (own.accepted + kGate.group_weight * share) / (own.tried + kGate.group_weight);
}

double Acceptance::doubt(int kind, int position) const {
  const Share known = group(kind, position);
  return kGate.trial_errors * std::sqrt(known.share * (1 - known.share) / (known.weight + 1));
}

}  // namespace hocket
