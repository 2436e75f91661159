// Tests what a fit learns from steps, and what it guesses for sizes that it has not seen.
#include "compute/overlap/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "compute/overlap/medians.h"
#include "compute/overlap/served_testing.h"

namespace hocket {
namespace {

using testing::kServedLayers;
using testing::Machine;
using testing::Server;

TEST(SizeClasses, ArePowersOfTwoAndHalfwayBetween) {
  std::vector<int64_t> borders;
  for (int i = 0; i < 12; ++i) borders.push_back(size_of_class(i));
  EXPECT_EQ(borders, (std::vector<int64_t>{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48}));
  for (int64_t size = 1; size < 5000; ++size) {
    const int of_class = size_class(size);
    ASSERT_LE(size, size_of_class(of_class)) << size;
    ASSERT_GT(size, size_of_class(of_class - 1)) << size;
  }
  EXPECT_EQ(size_of_class(size_class(int64_t{1} << 40)), int64_t{1} << 40);
}

TEST(Lines, AreFoundThroughPoints) {
  std::vector<Point> points;
  for (const double x : {1.0, 4.0, 64.0, 500.0})
    for (const double z : {0.0, 1000.0, 90'000.0}) points.push_back({x, z, 7 + 3 * x + 0.02 * z});
  const Line line = line_through(points, false);
  EXPECT_NEAR(line.floor, 7, 1e-6);
  EXPECT_NEAR(line.a, 3, 1e-6);
  EXPECT_NEAR(line.b, 0.02, 1e-9);
  // Where times fall with size, the line has no slope: its floor alone remains.
  const std::vector<Point> falling = {{1, 0, 10}, {10, 0, 9}, {100, 0, 8}};
  EXPECT_EQ(line_through(falling, true).a, 0);
  EXPECT_NEAR(line_through(falling, true).floor, 9, 1);
}

TEST(Lines, OutliersDoNotMoveTheRobustOne) {
  RobustLine line;
  for (int i = 0; i < 16; ++i) {
    const double x = 10 + 10.0 * (i % 4);
    line.add(x, i % 5 == 0 ? 5000 : 4 + 2 * x);
  }
  EXPECT_NEAR(line.at(20), 44, 1e-6);
  EXPECT_NEAR(line.at(80), 164, 1e-6);
  EXPECT_EQ(line.num_shifts(), 0u);
}

TEST(Lines, TheRobustOneForgetsAtOnceWhatHasShifted) {
  RobustLine line;
  for (int i = 0; i < 16; ++i) line.add(10 + i, 2 * (10 + i));
  for (int i = 0; i < 3; ++i) line.add(20, 400);
  EXPECT_EQ(line.num_shifts(), 1u);
  EXPECT_NEAR(line.at(20), 400, 1e-6);
}

TEST(MeasuredRatios, AStallIsForgottenAndAGainBelieved) {
  MeasuredRatio ratio;
  for (int i = 0; i < 20; ++i) ratio.add(1);
  for (int i = 0; i < 5; ++i) ratio.add(2);
  EXPECT_EQ(ratio.median(), 1);
  for (int i = 0; i < 3; ++i) ratio.add(0.5);
  EXPECT_EQ(ratio.median(), 0.5);
  EXPECT_EQ(ratio.count(), 3);
  for (int i = 0; i < 8; ++i) ratio.add(1);  // slower for good
  EXPECT_EQ(ratio.median(), 1);
}

TEST(MeasuredRatios, WeakenedTheyCountAsAGuess) {
  MeasuredRatio ratio, of_two_worlds;
  for (int i = 0; i < 20; ++i) ratio.add(1.25), of_two_worlds.add(3);
  ratio.weaken(), of_two_worlds.weaken();
  EXPECT_EQ(ratio.count(), 2);
  EXPECT_EQ(ratio.median(), 1.25);
  EXPECT_EQ(of_two_worlds.count(), 0);
}

TEST(Medians, AreThoseOfTheLastValues) {
  std::mt19937 random(1);
  RunningMedian<5> median;
  std::deque<float> last;
  for (int i = 0; i < 200; ++i) {
    last.push_back(static_cast<float>(random() % 1000));
    if (last.size() > 5) last.pop_front();
    median.add(last.back());
    std::vector<float> sorted(last.begin(), last.end());
    std::ranges::sort(sorted);
    const size_t middle = sorted.size() / 2;
    const double want = sorted.size() % 2 == 1 ? static_cast<double>(sorted[middle])
                                               : 0.5 * (sorted[middle - 1] + sorted[middle]);
    ASSERT_EQ(median.median(), want);
  }
}

// A fit that learns from the steps of a made-up machine.
class Fit : public ::testing::Test {
 protected:
  Fit() : fit_(kServedLayers, nullptr) {}
  void play(const Bucket& bucket, int times, const Plan& plan = {}) {
    Server server(machine_, {.orders = &orders_, .layers = kServedLayers, .clock = &clock_},
                  noise_);
    const int num_halves = orders_.at(plan.order).num_halves;
    for (int i = 0; i < times; ++i) fit_.note(server.played(bucket, plan), plan, num_halves);
  }
  // Returns the largest relative error of all times that a step depends on.
  double error(const Bucket& bucket) const {
    const StageTimes is = fit_.at(bucket), should = machine_.at(bucket);
    double worst = std::abs(is.dispatch.busy_us / should.dispatch.busy_us - 1);
    worst = std::max(worst, std::abs(is.combine.busy_us / should.combine.busy_us - 1));
    for (size_t op = 0; op < kNumOps; ++op)
      worst = std::max(worst, std::abs(is.compute[op] / should.compute[op] - 1));
    return worst;
  }

  const OrderTable& orders_ = OrderTable::builtin();
  FakeClock clock_;
  Machine machine_;
  double noise_ = 0;
  FittedTimes fit_;
};

Bucket decode(int rows) {
  return {Phase::decode, rows, rows * 500};
}

TEST_F(Fit, KnowsWhatItHasSeen) {
  play(decode(64), 3);
  EXPECT_LT(error(decode(64)), 1e-5);
  EXPECT_EQ(fit_.num_seen(decode(64)), 3);
  EXPECT_EQ(fit_.num_seen(decode(49)), 3);  // the same bucket
  EXPECT_EQ(fit_.num_seen(decode(48)), 0);
  EXPECT_NEAR(fit_.at(decode(64)).dispatch.latency_us, machine_.latency_us, 1e-4);
  EXPECT_NEAR(fit_.beside_us(decode(64)), testing::kBesideUs, 0.01);
  EXPECT_EQ(fit_.num_seen(Phase::prefill), 0);
}

TEST_F(Fit, IsALineBetweenAndBeyondSizesWithoutAPrior) {
  machine_.weights_share = 0.5;
  for (const int rows : {8, 64}) play(decode(rows), 16);
  EXPECT_LT(error(decode(24)), 0.01);
  EXPECT_LT(error(decode(3)), 0.03);
  EXPECT_LT(error(decode(256)), 0.03);
}

TEST_F(Fit, IsHalfFloorWhereOneSizeWasSeen) {
  play(decode(64), 3);
  const double whole = machine_.at(decode(64)).of(Op::experts);
  EXPECT_NEAR(fit_.at(decode(32)).of(Op::experts), 0.75 * whole, 0.01 * whole);
  EXPECT_NEAR(fit_.at(decode(128)).of(Op::experts), 1.5 * whole, 0.01 * whole);
}

TEST_F(Fit, TakesTheShapeOfAPriorAndTheLevelOfWhatIsMeasured) {
  auto prior = std::make_shared<Machine>(machine_);
  prior->level = 0.3;
  fit_ = FittedTimes(kServedLayers, prior);
  EXPECT_NEAR(fit_.at(decode(64)).of(Op::experts) / machine_.at(decode(64)).of(Op::experts), 0.3,
              1e-6);  // nothing else is known
  play(decode(64), 16);
  for (const int rows : {1, 32, 64, 500})
    EXPECT_NEAR(fit_.at(decode(rows)).of(Op::experts) / machine_.at(decode(rows)).of(Op::experts),
                1, 1e-4);
}

TEST_F(Fit, LearnsHalvesFromStepsInTwo) {
  machine_.weights_share = 0.9;  // so that a half is far from half a step
  play(decode(64), 16);
  const int four_phase = orders_.find("four-phase");
  play(decode(64), 16, {.order = four_phase});
  EXPECT_LT(error(decode(32)), 0.02);
  EXPECT_LT(error(decode(64)), 0.02);
  play(decode(64), 16, {.order = four_phase, .share = 16});
  EXPECT_LT(error(decode(16)), 0.15);  // the division among uneven halves is a guess
}

TEST_F(Fit, LearnsWhatPartsCost) {
  play(decode(64), 16);
  play(decode(64), 16, {.parts = 4});
  EXPECT_NEAR(fit_.at(decode(64)).part_us, machine_.at(decode(64)).part_us, 0.1);
  EXPECT_LT(error(decode(64)), 1e-5);  // the times of a whole batch stay as they were
}

TEST_F(Fit, AttentionGoesWithKeys) {
  for (const int keys : {1000, 8000}) play({Phase::decode, 64, 64 * keys}, 16);
  EXPECT_LT(error({Phase::decode, 64, 64 * 3000}), 0.1);
  EXPECT_LT(error({Phase::decode, 64, 64 * 8000}), 0.02);
}

TEST_F(Fit, IsNotMovedByNoiseAndForgetsSlowly) {
  noise_ = 0.1;
  play(decode(64), 60);
  EXPECT_LT(error(decode(64)), 0.15);
  noise_ = 0;
  machine_.level = 3;
  play(decode(64), 2);
  machine_.level = 1;
  EXPECT_LT(error(decode(64)), 0.2);  // two outliers
  machine_.level = 3;
  play(decode(64), 15);
  EXPECT_LT(error(decode(64)), 1e-5);
}

// No rank waited, so it is not known when a message came.
TEST_F(Fit, ArrivalsThatAreNoticedLateSayHowLongALinkTakesAtMost) {
  const Plan plan{};
  Server server(machine_, {.orders = &orders_, .layers = kServedLayers, .clock = &clock_}, 0);
  StepReport exact = server.played(decode(64), plan), late = exact;
  late.is_exact = 0, late.exposed_us = 0;
  late.dispatch_busy_us *= 5, late.combine_busy_us *= 5;
  for (int i = 0; i < 20; ++i) fit_.note(late, plan, 1);
  for (int i = 0; i < 20; ++i) fit_.note(exact, plan, 1);
  for (int i = 0; i < 20; ++i) fit_.note(late, plan, 1);
  EXPECT_LT(error(decode(64)), 1e-5);
  late.exposed_us = late.dispatch_busy_us + late.combine_busy_us;  // the rank waited for them
  for (int i = 0; i < 20; ++i) fit_.note(late, plan, 1);
  EXPECT_NEAR(fit_.at(decode(64)).dispatch.busy_us / machine_.at(decode(64)).dispatch.busy_us, 5,
              1e-3);
}

TEST_F(Fit, PhasesAreApart) {
  play(decode(64), 5);
  EXPECT_EQ(fit_.at({Phase::prefill, 64, 32'000}).of(Op::experts), 0);
  machine_.level = 2;
  play({Phase::prefill, 64, 32'000}, 5);
  machine_.level = 1;
  EXPECT_LT(error(decode(64)), 1e-5);
}

}  // namespace
}  // namespace hocket
