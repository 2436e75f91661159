#include "policy/speculation/draft_costs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace hocket {
namespace {

// Costs, and the number of the step that is noted next.
struct NotedCosts {
  explicit NotedCosts(int num_answers) { costs.begin(num_answers, kGate.growth); }
  void note(int num_drafts, double ratio) { costs.note(num_drafts, ratio, ++num_steps); }
  DraftCosts::Cost of(int num_drafts) const { return costs.of(num_drafts); }

  DraftCosts costs;
  uint64_t num_steps = 0;
};

TEST(DraftCosts, AreAGuessBeforeAnyStep) {
  const NotedCosts costs(4);
  EXPECT_DOUBLE_EQ(costs.of(0).time_ratio, 1);
  EXPECT_EQ(costs.of(0).error, 0);
  EXPECT_NEAR(costs.of(4).time_ratio, std::pow(2, 0.7), 1e-6);
  EXPECT_GT(costs.of(4).error, 0.2);
  EXPECT_GT(costs.of(8).error, costs.of(4).error);
  EXPECT_EQ(costs.costs.plain(), 0);
}

TEST(DraftCosts, FollowWhatWasMeasured) {
  NotedCosts costs(1);
  for (int i = 0; i < 15; ++i) costs.note(0, 1), costs.note(1, 1.3);
  EXPECT_NEAR(costs.of(1).time_ratio, 1.3, 0.02);
  EXPECT_LT(costs.of(1).error, 0.03);
  EXPECT_EQ(costs.of(1).num_measured, 15);
  EXPECT_EQ(costs.costs.num_plain(), 15);
}

TEST(DraftCosts, AreRelativeToStepsWithoutDrafts) {
  NotedCosts costs(1);
  for (int i = 0; i < 15; ++i) costs.note(0, 2), costs.note(3, 3);
  EXPECT_NEAR(costs.of(3).time_ratio, 1.5, 0.03);
  EXPECT_NEAR(costs.costs.plain(), 2, 0.05);
  EXPECT_DOUBLE_EQ(costs.of(0).time_ratio, 1);
}

TEST(DraftCosts, BetweenMeasuredNumbersLieBetweenThem) {
  NotedCosts costs(1);
  for (int i = 0; i < 15; ++i) costs.note(0, 1), costs.note(1, 1.4), costs.note(4, 2);
  double last = costs.of(1).time_ratio;
  for (int i = 2; i <= 8; ++i) {
    EXPECT_GT(costs.of(i).time_ratio, last);
    last = costs.of(i).time_ratio;
  }
  EXPECT_LT(costs.of(2).error, costs.of(8).error);  // nine rows are far from five
}

// Numbers of drafts that share a cell differ by their rows.
TEST(DraftCosts, NumbersOfOneCellDiffer) {
  NotedCosts costs(64);
  for (int i = 0; i < 15; ++i) costs.note(0, 1), costs.note(64, 2);
  EXPECT_EQ(DraftCosts::cell_of(60), DraftCosts::cell_of(64));
  EXPECT_NEAR(costs.of(60).time_ratio, std::pow(2, std::log1p(60 / 64.0) / std::log(2)), 0.05);
}

TEST(DraftCosts, FasterStepsWithDraftsAreNoise) {
  NotedCosts costs(1);
  for (int i = 0; i < 15; ++i) costs.note(0, 1), costs.note(1, 0.9);
  EXPECT_GE(costs.of(1).time_ratio, 1);
}

TEST(DraftCosts, OneStallChangesNothing) {
  NotedCosts costs(1);
  for (int i = 0; i < 9; ++i) costs.note(0, 1), costs.note(1, 1.3);
  const double before = costs.of(1).time_ratio;
  costs.note(1, 20);
  EXPECT_NEAR(costs.of(1).time_ratio, before, 0.01);
}

TEST(DraftCosts, AStallInTheFirstStepIsDoubted) {
  NotedCosts costs(1);
  for (int i = 0; i < 9; ++i) costs.note(0, 1);
  costs.note(1, 20);
  EXPECT_GT(costs.of(1).error, 0.1);
  for (int i = 0; i < 6; ++i) costs.note(1, 1.3);
  EXPECT_NEAR(costs.of(1).time_ratio, 1.3, 0.13);
}

// The speed halves, and later comes back, while all steps have drafts: their cost is the same.
TEST(DraftCosts, AnotherSpeedIsNoOtherCost) {
  NotedCosts costs(1);
  for (int i = 0; i < 15; ++i) costs.note(0, 1), costs.note(2, 1.5);
  for (int i = 0; i < 10; ++i) costs.note(2, 1.5);
  for (int i = 0; i < 50; ++i) costs.note(2, 3);
  EXPECT_NEAR(costs.of(2).time_ratio, 1.5, 0.05);
  EXPECT_NEAR(costs.costs.plain(), 2, 0.1);
  for (int i = 0; i < 3; ++i) costs.note(0, 2);
  EXPECT_NEAR(costs.of(2).time_ratio, 1.5, 0.03);
}

// A speed that changed just when the first drafts were tried makes them seem to cost nothing.
TEST(DraftCosts, AMistakeIsSeenInStepsWithoutDrafts) {
  NotedCosts costs(1);
  for (int i = 0; i < 10; ++i) costs.note(0, 2);
  for (int i = 0; i < 40; ++i) costs.note(2, 1.5);
  EXPECT_LT(costs.of(2).time_ratio, 1.1);
  for (int probe = 0; probe < 3; ++probe) {
    for (int i = 0; i < 3; ++i) costs.note(0, 1);
    for (int i = 0; i < 20; ++i) costs.note(2, 1.5);
  }
  EXPECT_NEAR(costs.of(2).time_ratio, 1.5, 0.08);
}

// The speed drifts by a third within a hundred steps; each step is compared with its neighbours.
TEST(DraftCosts, AreComparedWithTheStepsAround) {
  NotedCosts costs(1);
  std::mt19937 random(1);
  std::normal_distribution<double> noise(0, 0.03);
  for (int i = 0; i < 600; ++i) {
    const double speed = 1 + 0.3 * std::sin(i / 16.0);
    const bool is_plain = i < 10 || i % 60 < 3;
    costs.note(is_plain ? 0 : 2, (is_plain ? 1 : 1.4) * speed * std::exp(noise(random)));
  }
  EXPECT_NEAR(costs.of(2).time_ratio, 1.4, 0.1);
}

TEST(DraftCosts, OldMeasurementsAreDoubted) {
  NotedCosts costs(1);
  for (int i = 0; i < 15; ++i) costs.note(0, 1), costs.note(2, 1.5);
  const double before = costs.of(2).error;
  for (int i = 0; i < 300; ++i) costs.note(0, 1);
  EXPECT_GT(costs.of(2).error, before + 0.02);
}

TEST(DraftCosts, EveryNumberHasACell) {
  for (int i = 0; i <= DraftCosts::kMaxCounted; ++i) {
    ASSERT_LT(DraftCosts::cell_of(i), DraftCosts::kNumCells);
    ASSERT_GE(DraftCosts::cell_of(i + 1), DraftCosts::cell_of(i));
  }
  EXPECT_EQ(DraftCosts::cell_of(1 << 30), DraftCosts::cell_of(DraftCosts::kMaxCounted));
  EXPECT_NE(DraftCosts::cell_of(8), DraftCosts::cell_of(9));
}

TEST(DraftCosts, TheNextSizeBeginsWithTheGrowthOfThisOne) {
  NotedCosts costs(1);
  EXPECT_NEAR(costs.costs.growth(), kGate.growth, 1e-6);
  for (int i = 0; i < 9; ++i) costs.note(0, 1), costs.note(1, std::pow(2, 0.4));
  EXPECT_NEAR(costs.costs.growth(), 0.4, 0.03);
}

}  // namespace
}  // namespace hocket
