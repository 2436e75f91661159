// Tests which stage of which layer a time belongs to.
#include "compute/overlap/stage_times.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "compute/overlap/step_report.h"

namespace hocket {
namespace {

constexpr auto kFull = AttentionKind::full, kWindow = AttentionKind::window,
               kLinear = AttentionKind::linear;

TEST(Stages, HaveANumberEach) {
  std::set<size_t> seen;
  for (int op = 0; op < kNumOps; ++op)
    for (int kind = 0; kind < static_cast<int>(kNumAttentionKinds); ++kind) {
      const Stage stage{static_cast<Op>(op), is_attention(static_cast<Op>(op)) ? kind : 0};
      const size_t index = index_of(stage);
      seen.insert(index);
      EXPECT_EQ(stage_at(index).op, stage.op);
      EXPECT_EQ(stage_at(index).kind, stage.kind);
    }
  EXPECT_EQ(seen.size(), kNumStages);
  EXPECT_EQ(*seen.rbegin(), kNumStages - 1);
  EXPECT_EQ(index_of({Op::gate, 2}), index_of({Op::gate, 0}));  // it does not depend on the kind
}

TEST(StageTimes, CopiesOfRowsCostTheSameInAnyNumberOfParts) {
  StageTimes times;
  times.part_us = 10, times.wave_us = 1, times.spread_us = 500;
  const auto all = [&](const Grain& grain) {
    double sum = 0;
    for (int wave = 0; wave < grain.num_waves(); ++wave) sum += times.added_us(grain, wave);
    return sum;
  };
  EXPECT_EQ(all({1, 1}), 0);
  EXPECT_EQ(all({2, 1}), 510);
  EXPECT_EQ(all({4, 1}), 530);
  EXPECT_EQ(all({8, 1}), 570);
  EXPECT_EQ(all({1, 4}), 3);
  EXPECT_EQ(all({2, 4}), 516);
}

TEST(LayerKinds, AreNumberedInOneSequenceAndRepeated) {
  const LayerCounts layers{.num_dense = 1,
                           .num_moe = 9,
                           .kinds = LayerKinds(std::array{kLinear, kLinear, kLinear, kFull})};
  const LayerKinds& kinds = layers.kinds;
  ASSERT_EQ(kinds.num(), 2);
  EXPECT_EQ(kinds.kind(0), kFull);
  EXPECT_EQ(kinds.kind(1), kLinear);
  for (int layer = 0; layer < 10; ++layer) EXPECT_EQ(kinds.of(layer), layer % 4 == 3 ? 0 : 1);
  EXPECT_EQ(layers.count({Op::attn_in, 0}), 2);
  EXPECT_EQ(layers.count({Op::attn_core, 1}), 8);
  EXPECT_EQ(layers.count({Op::attn_core, 2}), 0);
  EXPECT_EQ(layers.count({Op::mlp}), 1);
  EXPECT_EQ(layers.count({Op::experts}), 9);
  EXPECT_EQ(kinds.num_stages(), size_t{kNumOps} + 2);
}

TEST(LayerKinds, OfOneKindStagesAreOperations) {
  for (const LayerKinds& kinds : {LayerKinds(), LayerKinds(std::array{kWindow, kWindow})}) {
    const LayerCounts layers{.num_moe = 7, .kinds = kinds};
    EXPECT_EQ(kinds.num(), 1);
    EXPECT_EQ(kinds.num_stages(), size_t{kNumOps});
    EXPECT_EQ(layers.count({Op::attn_core, 0}), 7);
    EXPECT_EQ(layers.count({Op::attn_core, 1}), 0);
  }
}

TEST(LayerKinds, OfDeepModelsTheFirstLayersRepeat) {
  std::vector<AttentionKind> deep(1000, kWindow);
  for (size_t layer = 0; layer < deep.size(); layer += 4) deep[layer] = kFull;
  const LayerKinds kinds(deep);
  for (int layer = 0; layer < 1000; ++layer) ASSERT_EQ(kinds.of(layer), layer % 4 == 0 ? 0 : 1);
}

TEST(StageTimes, TheMeanLayerIsThatOfAllKinds) {
  StageTimes times;
  times.of(Op::attn_in) = 10, times.of(Op::attn_core) = 100;
  times.of(Op::attn_in, 1) = 20, times.of(Op::attn_core, 1) = 40;
  EXPECT_EQ(times.mean_attention({.num_moe = 8}), 110);
  EXPECT_EQ(times.mean_attention(
                {.num_moe = 8, .kinds = LayerKinds(std::array{kLinear, kLinear, kLinear, kFull})}),
            72.5);
}

TEST(StepReports, TheSlowestOfEachKindCounts) {
  StepReport a{.rows = 1, .is_valid = 1}, b = a;
  a.compute_us[index_of({Op::attn_core, 0})] = 5;
  a.compute_us[index_of({Op::attn_core, 1})] = 7;
  b.compute_us[index_of({Op::attn_core, 1})] = 9;
  const StepReport all = slowest_of(std::array{a, b});
  EXPECT_EQ(all.compute(Op::attn_core), 5);
  EXPECT_EQ(all.compute(Op::attn_core, 1), 9);
}

// With k experts of a row on a rank, the share x of the experts has all of them with x^k.
TEST(StageTimes, SumsLeaveWithTheirLastExpert) {
  const TransferTime even{.busy_us = 100}, twice{.busy_us = 100, .spread = 2};
  const Grain waves{.waves = 4}, parts{.parts = 2, .waves = 2};
  for (const TransferTime& one : {even, twice})
    for (const Grain& grain : {waves, parts}) {
      EXPECT_EQ(one.share_of_waves(0, grain), 0);
      EXPECT_EQ(one.share_of_waves(4, grain), 1);
    }
  EXPECT_EQ(even.share_of_waves(1, waves), 0.25);
  EXPECT_DOUBLE_EQ(twice.share_of_waves(1, waves), 1.0 / 16);
  EXPECT_DOUBLE_EQ(twice.share_of_waves(3, waves), 9.0 / 16);
  EXPECT_EQ(twice.share_of_waves(1, parts), 0.25);
  EXPECT_EQ(twice.busy_in(waves), 100);
  EXPECT_EQ(twice.busy_in(parts), 200);
}

}  // namespace
}  // namespace hocket
