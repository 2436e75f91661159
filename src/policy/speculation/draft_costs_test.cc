#include "policy/speculation/draft_costs.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hocket {
namespace {

DraftCosts begun(int num_answers) {
  DraftCosts costs;
  costs.begin(num_answers, kGate.growth);
  return costs;
}

TEST(DraftCosts, AreAGuessBeforeAnyStep) {
  const DraftCosts costs = begun(4);
  EXPECT_DOUBLE_EQ(costs.of(0).time_ratio, 1);
  EXPECT_NEAR(costs.of(4).time_ratio, std::pow(2, 0.7), 1e-9);
  EXPECT_FALSE(costs.of(4).is_near);
  EXPECT_GT(costs.of(4).doubt, 0.3);
}

TEST(DraftCosts, FollowWhatWasMeasured) {
  DraftCosts costs = begun(1);
  for (int i = 0; i < 15; ++i) costs.note(0, 1), costs.note(1, 1.3);
  EXPECT_NEAR(costs.of(1).time_ratio, 1.3, 0.05);
  EXPECT_TRUE(costs.of(1).is_near);
  EXPECT_LT(costs.of(1).doubt, 0.02);
}

TEST(DraftCosts, AreRelativeToStepsWithoutDrafts) {
  DraftCosts costs = begun(1);
  for (int i = 0; i < 15; ++i) costs.note(0, 2), costs.note(3, 3);
  EXPECT_NEAR(costs.of(3).time_ratio, 1.5, 0.15);
  EXPECT_DOUBLE_EQ(costs.of(0).time_ratio, 1);
}

TEST(DraftCosts, BetweenMeasuredNumbersLieBetweenThem) {
  DraftCosts costs = begun(1);
  for (int i = 0; i < 15; ++i) costs.note(0, 1), costs.note(1, 1.4), costs.note(4, 2);
  double last = costs.of(1).time_ratio;
  for (int i = 2; i <= 4; ++i) {
    EXPECT_GT(costs.of(i).time_ratio, last);
    last = costs.of(i).time_ratio;
  }
  EXPECT_TRUE(costs.of(2).is_near);
  EXPECT_FALSE(costs.of(8).is_near);  // nine rows are far from five
  EXPECT_GT(costs.of(8).time_ratio, costs.of(4).time_ratio);
}

TEST(DraftCosts, FasterStepsWithDraftsAreNoise) {
  DraftCosts costs = begun(1);
  for (int i = 0; i < 15; ++i) costs.note(0, 1), costs.note(1, 0.9);
  EXPECT_GE(costs.of(1).time_ratio, 1);
}

TEST(DraftCosts, OneStallChangesNothing) {
  DraftCosts costs = begun(1);
  for (int i = 0; i < 9; ++i) costs.note(0, 1), costs.note(1, 1.3);
  const double before = costs.of(1).time_ratio;
  costs.note(1, 20);
  EXPECT_NEAR(costs.of(1).time_ratio, before, 0.01);
}

TEST(DraftCosts, OldMeasurementsAreDoubted) {
  DraftCosts costs = begun(1);
  for (int i = 0; i < 15; ++i) costs.note(0, 1), costs.note(2, 1.5);
  const double before = costs.of(2).doubt;
  costs.age();
  EXPECT_GT(costs.of(2).doubt, before);
  EXPECT_EQ(costs.num_plain(), 8);
  for (int i = 0; i < 10; ++i) costs.age();
  EXPECT_EQ(costs.num_plain(), 1);
}

TEST(DraftCosts, EveryNumberHasACell) {
  for (int i = 0; i <= DraftCosts::kMostCounted; ++i) {
    ASSERT_LT(DraftCosts::cell_of(i), DraftCosts::kNumCells);
    ASSERT_GE(DraftCosts::cell_of(i + 1), DraftCosts::cell_of(i));
  }
  EXPECT_EQ(DraftCosts::cell_of(1 << 30), DraftCosts::cell_of(DraftCosts::kMostCounted));
  EXPECT_NE(DraftCosts::cell_of(8), DraftCosts::cell_of(9));
}

TEST(DraftCosts, TheNextSizeBeginsWithTheGrowthOfThisOne) {
  DraftCosts costs = begun(1);
  EXPECT_DOUBLE_EQ(costs.growth(), kGate.growth);
  for (int i = 0; i < 5; ++i) costs.note(0, 1), costs.note(1, std::pow(2, 0.4));
  EXPECT_NEAR(costs.growth(), 0.4, 1e-4);
}

}  // namespace
}  // namespace hocket
