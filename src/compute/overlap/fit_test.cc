// Tests what a fit learns from steps, and what it guesses for sizes that it has not seen.
#include "compute/overlap/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/clock_testing.h"
#include "compute/overlap/served_testing.h"

namespace hocket {
namespace {

using testing::kServedLayers;
using testing::Server;
using testing::StageMachine;
using testing::UninformedPrior;

TEST(Buckets, ArePowersOfTwoAndHalfwayBetween) {
  std::vector<int> borders;
  for (int rows = 1; rows <= 48; ++rows) {
    const Bucket border = border_of({Phase::decode, rows, 0});
    EXPECT_GE(border.rows, rows);
    if (borders.empty() || borders.back() != border.rows) borders.push_back(border.rows);
  }
  EXPECT_EQ(borders, (std::vector{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48}));
  EXPECT_EQ(border_of({Phase::prefill, 1 << 30, 0}).rows, 1 << 30);
  const auto keys_per_row = [](int64_t keys) {
    return border_of({Phase::decode, 4, 4 * keys}).kv_tokens / 4;
  };
  EXPECT_EQ(keys_per_row(1), 1024);
  EXPECT_EQ(keys_per_row(1024), 1024);
  EXPECT_EQ(keys_per_row(1025), 4096);
  EXPECT_EQ(keys_per_row(16384), 16384);
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
  MeasuredRatio ratio;
  for (int i = 0; i < 20; ++i) ratio.add(1.25);
  ratio.weaken(2);
  EXPECT_EQ(ratio.count(), 2);
  EXPECT_EQ(ratio.median(), 1.25);
  ratio.weaken(9);
  EXPECT_EQ(ratio.count(), 2);
}

// A fit that learns from the steps of a made-up machine.
class Fit : public ::testing::Test {
 protected:
  Fit() : fit_(kServedLayers, std::make_shared<UninformedPrior>()) {}
  void play(const Bucket& bucket, int times, const Plan& plan = {}) {
    Server server(machine_, options_, noise_);
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
  const Planner::Options options_{.orders = &orders_,
                                  .layers = kServedLayers,
                                  .prior = std::make_shared<UninformedPrior>(),
                                  .clock = &clock_};
  StageMachine machine_;
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
  EXPECT_NEAR(fit_.other_us(decode(64)), testing::kOtherUs, 0.01);
  EXPECT_EQ(fit_.num_seen({Phase::prefill, 64, 32'000}), 0);
}

TEST_F(Fit, TakesTheShapeOfAPriorAndTheLevelOfWhatIsMeasured) {
  auto prior = std::make_shared<StageMachine>(machine_);
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

TEST_F(Fit, LearnsWhatPartsAndWavesCost) {
  play(decode(64), 16);
  play(decode(64), 16, {.parts = 4});
  EXPECT_NEAR(fit_.at(decode(64)).part_us, machine_.at(decode(64)).part_us, 0.1);
  play(decode(64), 16, {.waves = 4});
  EXPECT_NEAR(fit_.at(decode(64)).wave_us, machine_.at(decode(64)).wave_us, 0.1);
  play(decode(64), 16, {.parts = 2, .waves = 2});
  EXPECT_NEAR(fit_.at(decode(64)).part_us, machine_.at(decode(64)).part_us, 0.5);
  EXPECT_NEAR(fit_.at(decode(64)).wave_us, machine_.at(decode(64)).wave_us, 0.5);
  EXPECT_LT(error(decode(64)), 1e-5);  // the times of a whole batch stay as they were
}

// Rows of answers travel more often in several parts, whatever the number of parts, and
// combine_wait adds all of their copies up.
TEST_F(Fit, LearnsWhatCopiesCostOnceForAllParts) {
  machine_.spread = 4, machine_.spread_us = 80;
  auto prior = std::make_shared<StageMachine>(machine_);
  prior->level = 0.5;
  fit_ = FittedTimes(kServedLayers, prior);
  play(decode(64), 16);
  play(decode(64), 16, {.parts = 2});
  EXPECT_LT(error(decode(64)), 1e-5);  // combine_wait of one part stays as it was
  // A part is still expected to cost half of what it does, so the copies get the other half, too.
  EXPECT_NEAR(fit_.at(decode(64)).spread_us, machine_.spread_us + 4, 0.1);
  for (int round = 0; round < 16; ++round) {
    play(decode(64), 16, {.parts = 8});
    play(decode(64), 16, {.parts = 2});
  }
  EXPECT_NEAR(fit_.at(decode(64)).spread_us, machine_.spread_us, 0.1);
  EXPECT_NEAR(fit_.at(decode(64)).part_us, machine_.at(decode(64)).part_us, 0.1);
  EXPECT_LT(error(decode(64)), 1e-5);
}

TEST_F(Fit, CopiesCostNoMoreThanPartsDid) {
  machine_.spread = 4, machine_.spread_us = 10;
  auto prior = std::make_shared<StageMachine>(machine_);
  prior->spread_us = 500;
  fit_ = FittedTimes(kServedLayers, prior);
  play(decode(64), 16);
  play(decode(64), 16, {.parts = 8});
  const StageTimes times = fit_.at(decode(64)), should = machine_.at(decode(64));
  EXPECT_NEAR(7 * times.part_us + times.spread_us, 7 * should.part_us + should.spread_us, 0.5);
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
  Server server(machine_, options_, 0);
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

// A stall of the link makes two steps slow; a change, all that follow.
TEST_F(Fit, ForgetsAtOnceALinkThatHasChanged) {
  noise_ = 0.02;
  play(decode(64), 20);
  machine_.link_gbit /= 4;
  play(decode(64), 2);
  machine_.link_gbit *= 4;
  play(decode(64), 2);
  EXPECT_EQ(fit_.num_link_shifts(), 0u);
  machine_.link_gbit /= 4;
  play(decode(64), 4);
  EXPECT_EQ(fit_.num_link_shifts(), 2u);  // dispatch and combine
  EXPECT_LT(error(decode(64)), 0.05);
}

TEST_F(Fit, KnowsSoManySizesAndNoMore) {
  const auto size = [](int i) {  // 140 buckets
    const int rows = (2 + i % 2) << i / 2 % 10;
    return Bucket{Phase::decode, rows, int64_t{rows} * (1000 << 2 * (i / 20))};
  };
  int num_known = 0;
  for (int i = 0; i < 140; ++i) play(size(i), 1);
  for (int i = 0; i < 140; ++i) num_known += fit_.num_seen(size(i));
  EXPECT_EQ(num_known, kTuning.max_cells);
}

// A machine with three linear layers for each full one.
class HybridMachine final : public StageModel {
 public:
  StageTimes at(const Bucket& bucket) const override {
    StageTimes times = machine.at(bucket);
    times.of(Op::attn_in, 1) = 90 + 3 * bucket.rows;
    times.of(Op::attn_core, 1) = 7 + 0.25 * bucket.rows;
    return times;
  }
  StageMachine machine;
};

LayerCounts hybrid_layers() {
  LayerCounts layers = kServedLayers;
  layers.kinds = LayerKinds(std::array{AttentionKind::linear, AttentionKind::linear,
                                       AttentionKind::linear, AttentionKind::full});
  return layers;
}

TEST_F(Fit, KnowsKindsOfLayersApart) {
  const HybridMachine machine;
  fit_ = FittedTimes(hybrid_layers(), std::make_shared<UninformedPrior>());
  const auto play_keys = [&](int keys_per_row) {
    const Bucket bucket{Phase::decode, 64, 64 * keys_per_row};
    const SearchInput step{
        .model = machine, .orders = orders_, .layers = hybrid_layers(), .bucket = bucket};
    for (int i = 0; i < 5; ++i)
      fit_.note(testing::report_of(step, {}, [](double us) { return us; }), {}, 1);
    return bucket;
  };
  const auto error_of = [&](const Bucket& bucket, const Stage& stage) {
    const double should = machine.at(bucket).of(stage.op, stage.kind);
    return std::abs(fit_.at(bucket).of(stage.op, stage.kind) / should - 1);
  };
  const Bucket few = play_keys(1000);
  for (size_t i = 0; i < hybrid_layers().kinds.num_stages(); ++i)
    EXPECT_LT(error_of(few, stage_at(i)), 1e-5) << op_name(stage_at(i).op);
  // The full layers read the keys, so that a delta net's time is the same with any number of them.
  const Bucket many = play_keys(8000), between{Phase::decode, 64, 64 * 3000};
  EXPECT_LT(error_of(many, {Op::attn_core, 0}), 0.02);
  EXPECT_LT(error_of(between, {Op::attn_core, 0}), 0.1);
  EXPECT_LT(error_of(between, {Op::attn_core, 1}), 1e-5);
}

TEST_F(Fit, PhasesAreApart) {
  play(decode(64), 5);
  EXPECT_EQ(fit_.at({Phase::prefill, 64, 32'000}).of(Op::experts),
            UninformedPrior().at({Phase::prefill, 64, 32'000}).of(Op::experts));
  machine_.level = 2;
  play({Phase::prefill, 64, 32'000}, 5);
  machine_.level = 1;
  EXPECT_LT(error(decode(64)), 1e-5);
}

}  // namespace
}  // namespace hocket
