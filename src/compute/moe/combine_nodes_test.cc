#include "compute/moe/combine_nodes.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

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
    EXPECT_EQ(CombineNodes(*Placement::contiguous(16, 8), groups).most_nodes(), 1);
  }
  // Empty leaves stand behind each run of three experts, so a half or a quarter is a node.
  for (const int ranks : {1, 2, 4})
    EXPECT_EQ(CombineNodes(*Placement::contiguous(12, ranks), 12).most_nodes(), 1);
}

TEST(CombineNodes, OtherRunsOfGroupsAreCutIntoTheFewest) {
  EXPECT_EQ(nodes_of(8, 3, 8), (std::vector<int>{0, 0, 2, 2, 4, 5, 6, 6}));
  EXPECT_EQ(nodes_of(16, 3, 8), (std::vector<int>{0, 0, 0, 0, 2, 2, 2, 2, 4, 4, 5, 5, 6, 6, 6, 6}));
  EXPECT_EQ(nodes_of(6, 3, 6), (std::vector<int>{0, 0, 2, 4, 5, 6}));  // leaves 0 1 2 - 4 5 6 -
}

TEST(CombineNodes, ExpertsAreNumberedByRank) {
  const auto file = std::filesystem::path(::testing::TempDir()) /
                    ("hocket-nodes-" + std::to_string(getpid()) + ".json");
  std::ofstream(file) << "[4, 5, 0,  6, 7, 1,  2, 3]";  // groups of one on three ranks
  const Placement placement = *Placement::from_file(file, 8, 3);
  std::filesystem::remove(file);
  const CombineNodes nodes(placement, 8);
  EXPECT_EQ(placement.experts_of(1).size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_EQ(nodes.nodes_on(rank).size(), placement.experts_of(rank).size());
    for (size_t i = 0; i < nodes.nodes_on(rank).size(); ++i) {
      const int expert = placement.experts_of(rank)[i];
      EXPECT_EQ(nodes.leaves_on(rank)[i], expert);
      EXPECT_EQ(nodes.leaves()[expert], expert);
      EXPECT_EQ(nodes.nodes_on(rank)[i], nodes.node_of(expert));
      EXPECT_EQ(placement.rank_of(nodes.node_of(expert)), rank);
    }
  }
}

}  // namespace
}  // namespace hocket
