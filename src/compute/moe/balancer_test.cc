#include "compute/moe/balancer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

namespace hocket {
namespace {

using Loads = std::vector<uint64_t>;

// Loads after a power law, in random sequence.
Loads zipf(int num_experts, double exponent, int seed) {
  Loads loads;
  for (int i = 1; i <= num_experts; ++i)
    loads.push_back(static_cast<uint64_t>(std::llround(1e6 / std::pow(i, exponent))));
  std::mt19937 random(seed);
  std::ranges::shuffle(loads, random);
  return loads;
}

std::vector<int> experts_of(const Placement& placement, int rank) {
  const std::span<const int> experts = placement.experts_of(rank);
  return {experts.begin(), experts.end()};
}

void expect_whole(const Placement& placement, int num_experts, int num_places, int num_ranks) {
  ASSERT_EQ(placement.num_experts(), num_experts);
  ASSERT_EQ(placement.num_places(), num_places);
  for (int rank = 0; rank < num_ranks; ++rank)
    ASSERT_EQ(std::ssize(placement.experts_of(rank)), num_places / num_ranks);
}

// Loads 90 40 30 20, two spare places: 90 -> 45 45 -> 30 30 30, since 45 > 40. Then heaviest first
// into three ranks of two: 40 | 30 (of 90) | 30, then the lightest ranks with room.
TEST(PublishedBalancer, ReplicatesTheBusiestThenPacksTheHeaviestFirst) {
  const Placement placement =
      published_placement(Loads{90, 40, 30, 20}, {.num_ranks = 3, .num_places = 6});
  // Places: experts 0 1 2 3 0 0 with 30 40 30 20 30 30. Sorted: 1, 0, 2, 0, 0, 3.
  // 1 -> rank 0 (40), 0 -> rank 1 (30), 2 -> rank 2 (30), 0 -> rank 1 (60), 0 -> rank 2 (60),
  // 3 -> rank 0 (60).
  EXPECT_EQ(experts_of(placement, 0), (std::vector<int>{1, 3}));
  EXPECT_EQ(experts_of(placement, 1), (std::vector<int>{0, 0}));
  EXPECT_EQ(experts_of(placement, 2), (std::vector<int>{0, 2}));
}

// Four groups of two with loads 10 11, 2 3, 7 9, 4 4 on two nodes of two ranks. Sums 21 5 16 8:
// 21 -> node 0, 16 -> node 1, 8 -> node 1 (24), 5 -> node 0 (26).
TEST(PublishedBalancer, KeepsGroupsOnANode) {
  const Placement placement =
      published_placement(Loads{10, 11, 2, 3, 7, 9, 4, 4},
                          {.num_ranks = 4, .num_places = 12, .num_groups = 4, .num_nodes = 2});
  // Node 0 has 10 11 2 3; replicas of 11 and of 10: 5 5.5 2 3 5.5 5. Sorted: expert 1 (5.5),
  // 1 (5.5), 0 (5), 0 (5), 3 (3), 2 (2): rank 0 gets 1 0 3, rank 1 gets 1 0 2.
  EXPECT_EQ(experts_of(placement, 0), (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(experts_of(placement, 1), (std::vector<int>{0, 1, 2}));
  // Node 1 has 7 9 4 4; replicas of 9 and of 7: 3.5 4.5 4 4 4.5 3.5. Sorted: 5 (4.5), 5, 6 (4),
  // 7 (4), 4 (3.5), 4: rank 2 gets 5 6 4, rank 3 gets 5 7 4.
  EXPECT_EQ(experts_of(placement, 2), (std::vector<int>{4, 5, 6}));
  EXPECT_EQ(experts_of(placement, 3), (std::vector<int>{4, 5, 7}));
}

TEST(PublishedBalancer, OnePlaceARankKeepsTheSequence) {
  const Placement placement =
      published_placement(Loads{1, 5, 3}, {.num_ranks = 3, .num_places = 3});
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(experts_of(placement, rank), std::vector{rank});
}

TEST(Balancers, KeepEveryExpertAndAllSizes) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int ranks = 1 << (round % 4), experts = 16 * (1 + round % 3);
    const int places = experts + ranks * (round % 5);
    Loads loads(experts);
    for (uint64_t& load : loads) load = random() % (round % 7 == 0 ? 1 : 1000);
    const int nodes = ranks >= 4 && places % 2 == 0 ? 2 : 1;
    const Placement published = published_placement(
        loads, {.num_ranks = ranks, .num_places = places, .num_groups = 4, .num_nodes = nodes});
    expect_whole(published, experts, places, ranks);
    const Placement improved = improved_placement(loads, published);
    expect_whole(improved, experts, places, ranks);
    EXPECT_LE(rank_loads(loads, improved).largest, rank_loads(loads, published).largest * 1.000001);
    for (int e = 0; nodes == 2 && e < experts; ++e)  // a group is on one node
      for (const int place : published.places_of(e))
        EXPECT_EQ(published.rank_at(place) / (ranks / 2),
                  published.rank_of(e / (experts / 4) * (experts / 4)) / (ranks / 2));
  }
}

TEST(ImprovedBalancer, MovesNothingWhereRanksAreEqual) {
  const Placement even = *Placement::contiguous(16, 4);
  EXPECT_EQ(num_moves(even, improved_placement(Loads(16, 10), even)), 0);
  EXPECT_EQ(num_moves(even, improved_placement(Loads(16, 0), even)), 0);
}

TEST(ImprovedBalancer, BalancesAsWellAsThePublishedWithFewerMoves) {
  for (const double exponent : {0.5, 0.8, 1.2}) {
    int moves = 0, published_moves = 0;
    double balance = 0, published_balance = 0;
    for (int layer = 0; layer < 8; ++layer) {
      const Loads loads = zipf(128, exponent, layer);
      const Placement now = Placement::contiguous(128, 8)->with_replicas(2);
      const Placement improved = improved_placement(loads, now);
      const Placement published = published_placement(loads, {.num_ranks = 8, .num_places = 144});
      moves += num_moves(now, improved), published_moves += num_moves(now, published);
      balance += rank_loads(loads, improved).balancedness() / 8;
      published_balance += rank_loads(loads, published).balancedness() / 8;
    }
    EXPECT_GE(balance, published_balance - 0.01) << exponent;
    EXPECT_LT(2 * moves, published_moves) << exponent;
  }
}

TEST(RankLoads, SpreadAnExpertOverItsPlaces) {
  const Placement placement = Placement::of_places(std::array{0, 1, 0, 2}, 3, 2);
  const RankLoads loads = rank_loads(Loads{10, 4, 6}, placement);
  EXPECT_EQ(loads.largest, 11);
  EXPECT_EQ(loads.mean, 10);
  EXPECT_DOUBLE_EQ(loads.balancedness(), 10.0 / 11);
}

}  // namespace
}  // namespace hocket
