// Says which sums of experts' rows travel in a combine: the nodes of the tree of combine groups
// (kernels/combine.h) of which a rank computes all slots that the row has there, each as large as
// it can be. They follow from the row's list of experts and the ranks that compute its slots, so
// any replica may compute a slot:
//
//   leaf      0 1   2 3   4 5   6 7
//   slots     a           b   c d          a, b and d on rank 0, c on rank 1
//   nodes     0---------  4-  6 7          rank 0 sends three sums, rank 1 one
//
// Thread: any. Source: docs/contracts/expert_parallel.md, "Rows".
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/moe/placement.h"

namespace hocket {

// Returns the node of `leaf` by its first leaf. leaf_of(i) returns the leaf of slot i if another
// rank computes it, or -1.
template <class LeafOf>
int32_t sent_node(int32_t leaf, int num_slots, LeafOf leaf_of) {
  int height = 31;
  for (int i = 0; i < num_slots; ++i)
    if (const int32_t other = leaf_of(i); other >= 0)
      height = std::min(height,
                        static_cast<int>(std::bit_width(static_cast<unsigned>(leaf ^ other))) - 1);
  if (height >= 31) return 0;
  return leaf >> std::max(height, 0) << std::max(height, 0);
}

// The nodes that a rank can always send, whatever the row: those whose experts all have one place,
// on one rank, and each expert with replicas by itself. Empty leaves belong to any rank.
//
//   leaf      0 1   2 3   4   5   6 7
//   rank      0 0   1 1   1   2   2 2      8 groups on 3 ranks
//   node      0---  2---  4   5   6---     named by its first leaf
//
// Immutable.
class CombineNodes {
 public:
  // Placement::check_groups() holds.
  CombineNodes(const Placement& placement, int num_groups);

  // Returns the node of an expert. The nodes of all ranks differ, and ascend with their leaves.
  int node_of(int expert) const { return nodes_[expert]; }
  // Returns the most sums that a rank sends for a row of many experts.
  int max_nodes() const { return max_nodes_; }
  // Returns the same for the layer that has most.
  static int max_nodes(const Placements& placements, int num_groups);

 private:
  std::vector<int32_t> nodes_;  // [experts]
  int max_nodes_ = 0;
};

}  // namespace hocket
