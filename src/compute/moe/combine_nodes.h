// Says which sums of experts' rows travel in a combine: the nodes of the tree of combine groups
// (kernels/combine.h) whose experts are all on one rank, each as large as it can be. Any placement
// of groups has such nodes, since a group alone is one. A rank with an aligned part of the tree has
// one node. Empty leaves belong to any rank.
//
//   leaf      0 1   2 3   4   5   6 7
//   rank      0 0   1 1   1   2   2 2      8 groups on 3 ranks
//   node      0---  2---  4   5   6---     named by its first leaf
//
// Immutable. Thread: any. Source: docs/contracts/expert_parallel.md, "Rows".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/moe/placement.h"

namespace hocket {

class CombineNodes {
 public:
  // Placement::check_groups() holds.
  CombineNodes(const Placement& placement, int num_groups);

  // Returns the leaf of each expert: combine_leaves().
  std::span<const int32_t> leaves() const { return leaves_; }
  // Returns the node of an expert. The nodes of all ranks differ, and ascend with their leaves.
  int node_of(int expert) const { return nodes_[expert]; }
  // Return the leaf and the node of each expert of a rank, by its number there.
  std::span<const int32_t> leaves_on(int rank) const { return on(rank, local_leaves_); }
  std::span<const int32_t> nodes_on(int rank) const { return on(rank, local_nodes_); }
  // Returns the number of nodes of the rank that has most.
  int most_nodes() const { return most_nodes_; }

 private:
  std::span<const int32_t> on(int rank, const std::vector<int32_t>& all) const {
    return std::span(all).subspan(first_[rank], first_[rank + 1] - first_[rank]);
  }

  std::vector<int32_t> leaves_, nodes_;              // [experts]
  std::vector<int32_t> local_leaves_, local_nodes_;  // [experts] rank by rank
  std::vector<int> first_;                           // [ranks + 1]
  int most_nodes_ = 0;
};

}  // namespace hocket
