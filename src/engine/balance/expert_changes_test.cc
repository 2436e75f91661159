#include "engine/balance/expert_changes.h"

#include <gtest/gtest.h>

#include "compute/moe/balancer.h"

namespace hocket {
namespace {

const Rebalancer kImprove = improved_placement;

TEST(ExpertChanges, MovesTheExpertsOfLayersThatAreUneven) {
  const Placements now = Placements(*Placement::contiguous(4, 2)).by_layer(3);
  // The second layer has two busy experts on rank 0; the others are even, or without rows.
  const std::vector<uint64_t> counts = {100, 100, 100, 100, 900, 900, 100, 100, 0, 0, 0, 0};
  const ExpertChanges changes = changes_for(counts, 10, now, kImprove);
  ASSERT_EQ(changes.layers.size(), 1u);
  const LayerChange& change = changes.layers[0];
  EXPECT_EQ(change.layer, 1);
  EXPECT_EQ(change.num_moves, 2);  // a busy expert and an idle one take each other's place
  EXPECT_EQ(change.max_moves, 1);
  EXPECT_EQ(changes.num_moves, 2);
  // 90 rows have 90 + 16 * 90 / 91 rows of work, 10 rows have 10 + 16 * 10 / 11.
  EXPECT_NEAR(change.before, 2 * (90 + 16 * 90 / 91.0), 0.01);
  EXPECT_NEAR(change.after, 90 + 16 * 90 / 91.0 + 10 + 16 * 10 / 11.0, 0.01);
  EXPECT_NEAR(changes.work, change.before + 2 * (10 + 16 * 10 / 11.0), 0.01);
  EXPECT_NEAR(changes.saved_share(), (change.before - change.after) / changes.work, 1e-9);
  EXPECT_LT(changes.balancedness_before, 1);
  EXPECT_NEAR(changes.balancedness_after, 1, 1e-6);
  EXPECT_NE(changes.fingerprint(), 0u);
  EXPECT_EQ(changes.fingerprint(), changes_for(counts, 10, now, kImprove).fingerprint());
}

TEST(ExpertChanges, AreNoneWhereLittleCanBeGained) {
  const Placements now = Placements(*Placement::contiguous(4, 2)).by_layer(1);
  const std::vector<std::vector<uint64_t>> cases = {
      {101, 100, 100, 100}, {900, 0, 0, 0}, {0, 0, 0, 0}};
  for (const std::vector<uint64_t>& counts : cases) {
    const ExpertChanges changes = changes_for(counts, 10, now, kImprove);
    EXPECT_TRUE(changes.layers.empty());
    EXPECT_EQ(changes.fingerprint(), 0u);
    EXPECT_EQ(changes.saved_share(), 0);
    EXPECT_EQ(changes.balancedness_before, changes.balancedness_after);
  }
}

// Each layer is worked out with a busy expert that should move.
TEST(ExpertChanges, NoFurtherLayerIsWorkedOutOnceTheyAreOver) {
  const Placements now = Placements(*Placement::contiguous(4, 2)).by_layer(3);
  const std::vector<uint64_t> counts = {9, 9, 1, 1, 9, 9, 1, 1, 9, 9, 1, 1};
  int num_worked_out = 0;
  const auto count = [&](std::span<const uint64_t> work, const Placement& from,
                         const std::function<bool()>& is_over) {
    ++num_worked_out;
    return improved_placement(work, from, is_over);
  };
  const auto changes = changes_for(counts, 1, now, count, [&] { return num_worked_out == 2; });
  EXPECT_EQ(num_worked_out, 2);
  EXPECT_TRUE(changes.layers.empty());
}

TEST(ExpertChanges, ThoseThatGainMostForAMoveComeFirst) {
  const Placements now = Placements(*Placement::contiguous(4, 2)).by_layer(2);
  const ExpertChanges changes =
      changes_for(std::vector<uint64_t>{500, 500, 100, 100, 900, 900, 100, 100}, 10, now, kImprove);
  ASSERT_EQ(changes.layers.size(), 2u);
  EXPECT_EQ(changes.layers[0].layer, 1);
  EXPECT_EQ(changes.layers[1].layer, 0);
}

}  // namespace
}  // namespace hocket
