#include "compute/moe/balancer.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "base/check.h"

namespace hocket {
namespace {

// A change must take this share of the mean load of a rank from the busiest.
constexpr double kMinGain = 0.005;
constexpr int64_t kMaxLookedAt = int64_t{1} << 28;  // changes, some seconds at most

// The pack of an item, and its turn among the items there.
struct Packed {
  int pack = 0, turn = 0;
};

// Packs items into packs of equal numbers: heaviest first, each into the lightest that has room.
std::vector<Packed> pack_evenly(std::span<const float> weights, int num_packs) {
  const int num_items = static_cast<int>(weights.size()), max_items = num_items / num_packs;
  std::vector<Packed> packed(weights.size());
  std::vector<int> sequence(weights.size()), taken(num_packs);
  std::vector<float> sums(num_packs);
  std::iota(sequence.begin(), sequence.end(), 0);
  if (max_items > 1)
    std::ranges::stable_sort(sequence, [&](int a, int b) { return weights[a] > weights[b]; });
  for (const int item : sequence) {
    int lightest = -1;
    for (int pack = 0; pack < num_packs; ++pack)
      if (taken[pack] < max_items && (lightest < 0 || sums[pack] < sums[lightest])) lightest = pack;
    // Packs of one item are filled in sequence.
    if (max_items == 1) lightest = item;
    packed[item] = {lightest, taken[lightest]++};
    sums[lightest] += weights[item];
  }
  return packed;
}

// Adds places one by one, each for the item that has most work a place. Returns the item of every
// place.
std::vector<int> add_replicas(std::span<const float> weights, int num_places,
                              std::vector<int>& counts) {
  std::vector<int> items(weights.size());
  std::iota(items.begin(), items.end(), 0);
  counts.assign(weights.size(), 1);
  while (std::ssize(items) < num_places) {
    size_t busiest = 0;
    const auto each = [&](size_t i) { return weights[i] / static_cast<float>(counts[i]); };
    for (size_t i = 1; i < weights.size(); ++i)
      if (each(i) > each(busiest)) busiest = i;
    items.push_back(static_cast<int>(busiest));
    ++counts[busiest];
  }
  return items;
}

}  // namespace

Placement published_placement(std::span<const uint64_t> loads, const BalanceShape& shape) {
  const auto num_experts = static_cast<int>(loads.size());
  const bool hierarchical = shape.num_groups % shape.num_nodes == 0;
  const int groups = hierarchical ? shape.num_groups : 1,
            nodes = hierarchical ? shape.num_nodes : 1;
  HOCKET_CHECK(shape.num_places >= num_experts && shape.num_places % shape.num_ranks == 0);
  HOCKET_CHECK(num_experts % groups == 0 && shape.num_ranks % nodes == 0);
  const int group_size = num_experts / groups;

  std::vector<float> of_group(groups);
  for (int e = 0; e < num_experts; ++e) of_group[e / group_size] += static_cast<float>(loads[e]);
  std::vector<std::vector<int>> of_node(nodes, std::vector<int>(num_experts / nodes));
  const std::vector<Packed> group_at = pack_evenly(of_group, nodes);
  for (int e = 0; e < num_experts; ++e) {
    const Packed at = group_at[e / group_size];
    of_node[at.pack][at.turn * group_size + e % group_size] = e;
  }

  const int node_places = shape.num_places / nodes, node_ranks = shape.num_ranks / nodes;
  const int rank_places = shape.num_places / shape.num_ranks;
  std::vector<int> places(shape.num_places), counts;
  for (int node = 0; node < nodes; ++node) {
    std::vector<float> weights;
    for (const int expert : of_node[node]) weights.push_back(static_cast<float>(loads[expert]));
    const std::vector<int> items = add_replicas(weights, node_places, counts);
    std::vector<float> each;
    for (const int item : items) each.push_back(weights[item] / static_cast<float>(counts[item]));
    const std::vector<Packed> at = pack_evenly(each, node_ranks);
    for (size_t i = 0; i < items.size(); ++i)
      places[node * node_places + at[i].pack * rank_places + at[i].turn] = of_node[node][items[i]];
  }
  return Placement::of_places(places, num_experts, shape.num_ranks);
}

namespace {

// A placement under change, with the load of each rank.
class Balancing {
 public:
  Balancing(std::span<const uint64_t> loads, const Placement& now)
      : loads_(loads), ranks_(now.num_ranks()), of_rank_(now.num_ranks()), places_(loads.size()) {
    for (int rank = 0; rank < now.num_ranks(); ++rank)
      for (const int expert : now.experts_of(rank)) {
        of_rank_[rank].push_back(expert);
        ++places_[expert];
      }
    for (int rank = 0; rank < now.num_ranks(); ++rank)
      for (const int expert : of_rank_[rank]) ranks_[rank] += share(expert);
    for (const uint64_t load : loads) mean_ += static_cast<double>(load);
    mean_ /= now.num_ranks();
  }

  double mean() const { return mean_; }

  // Makes the change that leaves the busiest rank, and the ranks that it changes, with the smallest
  // largest load. Returns false if no change gains `least`.
  bool relieve(double least) {
    const auto busiest = static_cast<int>(std::ranges::max_element(ranks_) - ranks_.begin());
    best_.reset();
    best_load_ = ranks_[busiest] - std::max(least, 1e-9 * mean_);
    for (size_t from = 0; from < of_rank_[busiest].size(); ++from)
      for (int rank = 0; rank < std::ssize(of_rank_); ++rank) {
        if (rank == busiest || has(rank, of_rank_[busiest][from])) continue;
        for (size_t to = 0; to < of_rank_[rank].size(); ++to) {
          try_swap({busiest, from, rank, to});
          try_replica({busiest, from, rank, to});
        }
      }
    if (!best_) return false;
    if (best_->is_swap)
      swap(*best_);
    else
      replicate(*best_);
    return true;
  }

  Placement result() const {
    return Placement::of_ranks(of_rank_, static_cast<int>(loads_.size()));
  }

 private:
  struct Change {
    int busiest = 0;
    size_t from = 0;  // place of the busiest rank
    int rank = 0;
    size_t to = 0;  // place of `rank`
    bool is_swap = false;
  };

  double share(int expert, int more = 0) const {
    return static_cast<double>(loads_[expert]) / (places_[expert] + more);
  }
  // Returns the places of an expert on a rank: published placements have some with several.
  auto count(int rank, int expert) const { return std::ranges::count(of_rank_[rank], expert); }
  bool has(int rank, int expert) const { return count(rank, expert) > 0; }
  void keep_if_best(const Change& change, double load) {
    if (load >= best_load_) return;
    best_load_ = load;
    best_ = change;
  }
  void try_swap(Change change) {
    const int a = of_rank_[change.busiest][change.from], b = of_rank_[change.rank][change.to];
    const double moved = share(a) - share(b);
    if (moved <= 0 || has(change.busiest, b)) return;
    change.is_swap = true;
    keep_if_best(change, std::max(ranks_[change.busiest] - moved, ranks_[change.rank] + moved));
  }
  // The place of one of b's replicas gets one of a. Loads change wherever a or b is.
  void try_replica(const Change& change) {
    const int a = of_rank_[change.busiest][change.from], b = of_rank_[change.rank][change.to];
    if (a == b || places_[b] < 2 || share(a) <= 0) return;
    const double relief = share(a) - share(a, 1), burden = share(b, -1) - share(b);
    double load = ranks_[change.rank] + share(a, 1) - share(b) +
                  static_cast<double>(count(change.rank, b) - 1) * burden;
    if (load >= best_load_) return;
    for (int rank = 0; rank < std::ssize(of_rank_); ++rank) {
      if (rank == change.rank) continue;
      const auto takes = static_cast<double>(count(rank, b));
      if (rank != change.busiest && takes == 0) continue;
      load = std::max(load,
                      ranks_[rank] - static_cast<double>(count(rank, a)) * relief + takes * burden);
    }
    keep_if_best(change, load);
  }
  void swap(const Change& change) {
    int& a = of_rank_[change.busiest][change.from];
    int& b = of_rank_[change.rank][change.to];
    const double moved = share(a) - share(b);
    ranks_[change.busiest] -= moved;
    ranks_[change.rank] += moved;
    std::swap(a, b);
  }
  void replicate(const Change& change) {
    int& place = of_rank_[change.rank][change.to];
    --places_[place];
    place = of_rank_[change.busiest][change.from];
    ++places_[place];
    for (size_t rank = 0; rank < of_rank_.size(); ++rank) {
      ranks_[rank] = 0;
      for (const int expert : of_rank_[rank]) ranks_[rank] += share(expert);
    }
  }

  const std::span<const uint64_t> loads_;
  std::vector<double> ranks_;
  std::vector<std::vector<int>> of_rank_;
  std::vector<int> places_;  // [experts] number of places
  double mean_ = 0;
  std::optional<Change> best_;
  double best_load_ = 0;
};

}  // namespace

Placement improved_placement(std::span<const uint64_t> loads, const Placement& now,
                             const std::function<bool()>& is_over) {
  HOCKET_CHECK(std::ssize(loads) == now.num_experts());
  Balancing balancing(loads, now);
  const int64_t looked_at = int64_t{now.max_experts()} * now.num_places();  // in a round, at most
  const int64_t max_rounds =
      std::min<int64_t>(4 * now.num_places(), std::max<int64_t>(1, kMaxLookedAt / looked_at));
  for (int64_t round = 0; round < max_rounds; ++round)
    if ((is_over && is_over()) || !balancing.relieve(kMinGain * balancing.mean())) break;
  return balancing.result();
}

RankLoads rank_loads(std::span<const uint64_t> loads, const Placement& placement) {
  std::vector<double> ranks(placement.num_ranks());
  RankLoads all;
  for (int expert = 0; expert < placement.num_experts(); ++expert) {
    const std::span<const int> places = placement.places_of(expert);
    for (const int place : places)
      ranks[placement.rank_at(place)] +=
          static_cast<double>(loads[expert]) / static_cast<double>(places.size());
    all.mean += static_cast<double>(loads[expert]) / placement.num_ranks();
  }
  all.largest = std::ranges::max(ranks);
  return all;
}

int num_moves(const Placement& from, const Placement& to) {
  int moves = 0;
  for (int rank = 0; rank < to.num_ranks(); ++rank) moves += num_moves_of(rank, from, to);
  return moves;
}

int num_moves_of(int rank, const Placement& from, const Placement& to) {
  return static_cast<int>(std::ranges::count_if(to.experts_of(rank), [&](int expert) {
    return !std::ranges::binary_search(from.experts_of(rank), expert);
  }));
}

}  // namespace hocket
