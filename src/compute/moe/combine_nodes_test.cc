#include "compute/moe/combine_nodes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace hocket {
namespace {

std::vector<int> all_nodes(const CombineNodes& nodes, int num_experts) {
  std::vector<int> all;
  for (int expert = 0; expert < num_experts; ++expert) all.push_back(nodes.node_of(expert));
  return all;
}

std::vector<int> nodes_of(int num_experts, int num_ranks, int num_groups) {
  const Placement placement = *Placement::contiguous(num_experts, num_ranks, num_groups);
  return all_nodes({placement, num_groups}, num_experts);
}

TEST(CombineNodes, ARankWithAnAlignedPartOfTheTreeHasOne) {
  for (const int groups : {8, 16}) {
    EXPECT_EQ(nodes_of(16, 1, groups), std::vector<int>(16, 0));
    const std::vector<int> two = nodes_of(16, 2, groups);
    for (int expert = 0; expert < 16; ++expert) EXPECT_EQ(two[expert], expert / 8 * groups / 2);
    EXPECT_EQ(CombineNodes(*Placement::contiguous(16, 8), groups).max_nodes(), 1);
  }
  // Empty leaves are behind each run of three experts, so a half or a quarter is a node.
  for (const int ranks : {1, 2, 4})
    EXPECT_EQ(CombineNodes(*Placement::contiguous(12, ranks), 12).max_nodes(), 1);
}

TEST(CombineNodes, OtherRunsOfGroupsAreCutIntoTheFewest) {
  EXPECT_EQ(nodes_of(8, 3, 8), (std::vector<int>{0, 0, 2, 2, 4, 5, 6, 6}));
  EXPECT_EQ(nodes_of(16, 3, 8), (std::vector<int>{0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 5, 5, 6, 6, 6, 6}));
  EXPECT_EQ(nodes_of(6, 3, 6), (std::vector<int>{0, 0, 2, 4, 5, 6}));  // leaves 0 1 2 - 4 5 6 -
}

TEST(CombineNodes, AnExpertWithReplicasIsANodeByItself) {
  const Placement placement = Placement::of_places(std::array{0, 1, 2, 3, 5, 4, 5, 6, 7, 0}, 8, 2);
  const CombineNodes nodes(placement, 8);
  EXPECT_EQ(all_nodes(nodes, 8), (std::vector<int>{0, 1, 2, 2, 4, 5, 6, 6}));
  EXPECT_EQ(nodes.max_nodes(), 4);
}

// Returns the node of each slot.
std::vector<int32_t> sent(const std::vector<int32_t>& leaves, const std::vector<int>& ranks) {
  std::vector<int32_t> nodes;
  for (size_t s = 0; s < leaves.size(); ++s)
    nodes.push_back(sent_node(leaves[s], static_cast<int>(leaves.size()), [&](int other) {
      return ranks[other] == ranks[s] ? -1 : leaves[other];
    }));
  return nodes;
}

TEST(SentNodes, AreAsLargeAsTheRowAllows) {
  EXPECT_EQ(sent({0, 4, 5, 7}, {0, 0, 1, 0}), (std::vector<int32_t>{0, 4, 5, 6}));
  EXPECT_EQ(sent({3, 9, 12}, {2, 2, 2}), (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(sent({5}, {1}), (std::vector<int32_t>{0}));
  // One expert twice, which only a damaged list has.
  EXPECT_EQ(sent({5, 5}, {1, 0}), (std::vector<int32_t>{5, 5}));
}

// A row's slots of a node are on one rank, nodes do not overlap, and each is inside a larger one
// that has slots of other ranks. A rank never sends more than it may with any row.
TEST(SentNodes, PartTheRowByRanks) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    const int ranks = 2 + round % 3;
    std::vector<int> all(16 + 2 * ranks);
    for (int i = 0; i < std::ssize(all); ++i) all[i] = i < 16 ? i : static_cast<int>(random() % 16);
    std::ranges::shuffle(all, random);
    const Placement placement = Placement::of_places(all, 16, ranks);
    std::vector<int32_t> leaves(16);
    std::iota(leaves.begin(), leaves.end(), 0);
    std::ranges::shuffle(leaves, random);
    leaves.resize(6);
    std::vector<int> at;
    for (const int32_t expert : leaves) {
      const std::span<const int> places = placement.places_of(expert);
      at.push_back(placement.rank_at(places[random() % places.size()]));
    }
    const std::vector<int32_t> nodes = sent(leaves, at);
    std::map<int, std::set<int32_t>> of_rank;
    for (size_t s = 0; s < nodes.size(); ++s) {
      of_rank[at[s]].insert(nodes[s]);
      for (size_t t = 0; t < nodes.size(); ++t) ASSERT_TRUE(nodes[t] != nodes[s] || at[t] == at[s]);
    }
    for (const auto& [rank, sums] : of_rank)
      ASSERT_LE(std::ssize(sums), CombineNodes(placement, 16).max_nodes());
  }
}

}  // namespace
}  // namespace hocket
