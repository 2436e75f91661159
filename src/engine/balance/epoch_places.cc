#include "engine/balance/epoch_places.h"

#include <algorithm>
#include <utility>

#include "compute/moe/balancer.h"

namespace hocket {

EpochPlaces::EpochPlaces(Placements home, std::vector<bool> has_experts)
    : home_(std::move(home)), has_experts_(std::move(has_experts)), last_(home_) {}

Placements EpochPlaces::of(const RankSet& ranks) const {
  return ranks == RankSet::all(num_ranks()) ? home_ : home_.among(ranks);
}

// Those that leave keep their experts, so only replicas are removed before they have left.
ExpertChanges EpochPlaces::changes_without_others(const Placements& now,
                                                  const RankSet& stay) const {
  ExpertChanges changes;
  const int num_experts = now.first().num_experts();
  for (int layer = 0; layer < std::ssize(has_experts_); ++layer) {
    if (!has_experts_[static_cast<size_t>(layer)]) continue;
    if (home_.at(layer).fewest_places(stay.size()) < num_experts) return {};
    const Placement wanted = home_.at(layer).among(stay);
    std::vector<std::vector<int>> experts;
    for (int rank = 0; rank < wanted.num_ranks(); ++rank) {
      const Placement& of = stay.has(rank) ? wanted : now.at(layer);
      experts.emplace_back(of.experts_of(rank).begin(), of.experts_of(rank).end());
    }
    Placement to = Placement::of_ranks(std::move(experts), num_experts);
    if (to.fingerprint() == now.at(layer).fingerprint()) continue;
    const int moves = num_moves(now.at(layer), to);
    changes.num_moves += moves;
    changes.layers.push_back({.layer = layer, .to = std::move(to), .num_moves = moves});
  }
  return changes;
}

int64_t EpochPlaces::max_lacking(const RankSet& ranks) const {
  const Placements to = of(ranks);
  int64_t most = 0;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    int64_t lacking = 0;
    for (int layer = 0; layer < std::ssize(has_experts_); ++layer) {
      if (!has_experts_[static_cast<size_t>(layer)]) continue;
      std::span<const int> held = last_.at(layer).experts_of(rank);
      if (held.empty()) held = home_.at(layer).experts_of(rank);
      lacking += std::ranges::count_if(to.at(layer).experts_of(rank), [&](int expert) {
        return !std::ranges::binary_search(held, expert);
      });
    }
    most = std::max(most, lacking);
  }
  return most;
}

}  // namespace hocket
