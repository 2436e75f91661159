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

CombineNodes::CombineNodes(const Placement& placement, int num_groups)
    : leaves_(combine_leaves(placement.num_experts(), num_groups)) {
  const int num_experts = placement.num_experts();
  std::vector<int> rank_of_leaf(leaves_.empty() ? 0 : leaves_.back() + 1, -1);
  for (int expert = 0; expert < num_experts; ++expert)
    rank_of_leaf[leaves_[expert]] = placement.rank_of(expert);
  for (int expert = 0; expert < num_experts; ++expert) {
    const bool same = expert > 0 && leaves_[expert] == leaves_[expert - 1];
    nodes_.push_back(same ? nodes_.back() : largest_node(rank_of_leaf, leaves_[expert]));
  }
  first_.push_back(0);
  for (int rank = 0; rank < placement.num_ranks(); ++rank) {
    int num_nodes = 0;
    for (const int expert : placement.experts_of(rank)) {
      num_nodes += num_nodes > 0 && local_nodes_.back() == nodes_[expert] ? 0 : 1;
      local_leaves_.push_back(leaves_[expert]);
      local_nodes_.push_back(nodes_[expert]);
    }
    first_.push_back(static_cast<int>(local_nodes_.size()));
    most_nodes_ = std::max(most_nodes_, num_nodes);
  }
}

}  // namespace hocket
