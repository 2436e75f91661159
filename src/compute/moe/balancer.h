// Places the experts of a layer by how many rows chose each, so that ranks have equal work. Pure
// functions: equal input, equal placement, on every rank. Rows of an expert count as spread evenly
// over its places.
//
//   published_placement   groups of experts -> nodes -> replicas of the busiest -> ranks, heaviest
//                         first
//   improved_placement    from where the experts are: the swaps and replacements that relieve the
//                         busiest rank most
//
// Source: DeepSeek's expert parallel load balancer, whose two policies published_placement()
// follows with the same sums in float and the same choice among equals.   Thread: any.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "compute/moe/placement.h"

namespace hocket {

struct BalanceShape {
  int num_ranks = 1;
  int num_places = 0;  // a multiple of num_ranks, at least the number of experts
  // The hierarchical policy leaves each group of neighbours on one node. Where num_nodes does
  // not divide num_groups, and with 1, all places are one node's: the global policy. num_nodes
  // divides num_ranks, num_groups the number of experts.
  int num_groups = 1, num_nodes = 1;
};
// Returns the placement for `loads` [experts].
Placement published_placement(std::span<const uint64_t> loads, const BalanceShape& shape);

// Returns `now` with some places given to other experts. No rank's load exceeds what the busiest
// rank has in `now`. It ends when no change takes half a percent of a rank's mean load from the
// busiest, or after 2^28 changes that it looked at, which may take seconds. is_over, which may be
// empty, is asked before each change: once it returns true, the result is of no use.
Placement improved_placement(std::span<const uint64_t> loads, const Placement& now,
                             const std::function<bool()>& is_over = {});

// Returns the rows of the busiest rank and the mean of all ranks.
struct RankLoads {
  double largest = 0, mean = 0;
  double balancedness() const { return largest > 0 ? mean / largest : 1; }
};
RankLoads rank_loads(std::span<const uint64_t> loads, const Placement& placement);

// Returns how many places of `to` have an expert that their rank does not hold in `from`: the
// experts whose weights have to be loaded.
int num_moves(const Placement& from, const Placement& to);
// Returns how many of these places one rank has.
int num_moves_of(int rank, const Placement& from, const Placement& to);

}  // namespace hocket
