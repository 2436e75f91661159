#include "compute/moe/combine_nodes.h"

#include <algorithm>

#include "compute/kernels/combine.h"

namespace hocket {
namespace {

// Returns the first leaf of the largest node that has `leaf` and no leaf of another rank.
int largest_node(std::span<const int> rank_of_leaf, int leaf) {
  const int num_leaves = static_cast<int>(rank_of_leaf.size()), rank = rank_of_leaf[leaf];
  const auto here = [&](int other) { return other == rank || other < 0; };
  int first = leaf;
  for (int size = 2; size < 2 * num_leaves; size *= 2) {
    const int begin = leaf / size * size, end = std::min(begin + size, num_leaves);
    if (!std::ranges::all_of(rank_of_leaf.subspan(begin, end - begin), here)) break;
    first = begin;
  }
  return first;
}

}  // namespace

CombineNodes::CombineNodes(const Placement& placement, int num_groups) {
  const std::vector<int32_t> leaves = combine_leaves(placement.num_experts(), num_groups);
  const int num_experts = placement.num_experts();
  std::vector<int> rank_of_leaf(leaves.empty() ? 0 : leaves.back() + 1, -1);
  for (int expert = 0; expert < num_experts; ++expert)
    rank_of_leaf[leaves[expert]] = placement.places_of(expert).size() == 1
                                       ? placement.rank_of(expert)
                                       : placement.num_ranks() + expert;
  for (int expert = 0; expert < num_experts; ++expert) {
    const bool same = expert > 0 && leaves[expert] == leaves[expert - 1];
    nodes_.push_back(same ? nodes_.back() : largest_node(rank_of_leaf, leaves[expert]));
  }
  for (int rank = 0; rank < placement.num_ranks(); ++rank) {
    int num_nodes = 0, last = -1;
    for (const int expert : placement.experts_of(rank)) {
      num_nodes += nodes_[expert] != last ? 1 : 0;
      last = nodes_[expert];
    }
    max_nodes_ = std::max(max_nodes_, num_nodes);
  }
}

int CombineNodes::max_nodes(const Placements& placements, int num_groups) {
  int most = 0;
  for (const Placement& layer : placements.layers())
    most = std::max(most, CombineNodes(layer, num_groups).max_nodes());
  return most;
}

}  // namespace hocket
