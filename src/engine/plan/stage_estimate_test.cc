// Tests times of operations against the cost of whole passes, and bytes against counts by hand.
#include "engine/plan/stage_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "compute/overlap/order_table.h"
#include "compute/overlap/prediction.h"
#include "engine/plan/testing.h"

namespace hocket {
namespace {

using testing::choice_of;
using testing::cost_of;

constexpr MachineSpeed kSpeed = {100e9, 2e12, 4e12};
constexpr Op kMoving[] = {Op::dispatch_start, Op::dispatch_wait, Op::combine_start,
                          Op::combine_wait};
// Delta nets, and windows of 128 keys, beside full attention.
constexpr const char* kHybrid = "configs/qwen3_5_397b_a17b";
constexpr const char* kWindowed = "configs/mimo_v2_flash";

// Returns the time of all layers on one rank, without the copies of its starts and waits.
double computed_us(const StageEstimate& estimate, const Bucket& bucket) {
  const StageTimes times = estimate.at(bucket);
  const LayerCounts layers = estimate.layers(bucket);
  double all = layers.other_us;
  for (size_t i = 0; i < layers.kinds.num_stages(); ++i)
    if (std::ranges::find(kMoving, stage_at(i).op) == std::end(kMoving) && times.compute[i] > 0)
      all += layers.count(stage_at(i)) * (times.compute[i] - kLaunchUs);
  return all;
}

TEST(StageEstimate, OperationsAddUpToThePass) {
  for (const char* folder : {"configs/deepseek_v3", "configs/qwen3_235b_a22b",
                             "configs/deepseek_v2_lite", kHybrid, kWindowed})
    for (const char* kv : {"auto", "int8"}) {
      const ModelChoice choice = choice_of(folder, {.memory = {.kv_cache_dtype = kv}});
      const ModelCost cost = cost_of(choice);
      const StageEstimate estimate(choice, cost, {.speed = kSpeed});
      SCOPED_TRACE(fmt::format("{}, {} keys", folder, kv));
      for (const int rows : {1, 8, 64, 512}) {
        const Bucket bucket{Phase::decode, rows, int64_t{rows} * 3000};
        const double want = 1e6 * cost.seconds(cost.decode(rows, 3000), kSpeed);
        EXPECT_NEAR(computed_us(estimate, bucket), want, 1e-3 * want) << rows;
      }
      for (const int64_t context : {0, 5000})
        for (const int64_t rows : {64, 2048}) {
          const Bucket bucket{Phase::prefill, static_cast<int>(rows),
                              rows * context + rows * (rows + 1) / 2};
          const double want = 1e6 * cost.seconds(cost.prefill(static_cast<double>(rows),
                                                              static_cast<double>(context)),
                                                 kSpeed);
          EXPECT_NEAR(computed_us(estimate, bucket), want, 1e-3 * want) << rows << " " << context;
        }
    }
}

// Full layers read more keys as a context grows; delta nets read the same states.
TEST(StageEstimate, KindsOfLayersHaveTimesOfTheirOwn) {
  const ModelChoice choice = choice_of("configs/qwen3_5_397b_a17b");
  const StageEstimate estimate(choice, cost_of(choice), {.speed = kSpeed});
  const StageTimes near = estimate.at({Phase::decode, 8, 8 * 1000}),
                   far = estimate.at({Phase::decode, 8, 8 * 100'000});
  const LayerKinds kinds = estimate.layers({}).kinds;
  ASSERT_EQ(kinds.num(), 2);
  EXPECT_EQ(kinds.kind(0), AttentionKind::full);
  EXPECT_EQ(kinds.kind(1), AttentionKind::linear);
  EXPECT_EQ(estimate.layers({}).count({Op::attn_core, 1}), 45);
  EXPECT_GT(far.of(Op::attn_core, 0), 5 * near.of(Op::attn_core, 0));
  EXPECT_EQ(far.of(Op::attn_core, 1), near.of(Op::attn_core, 1));
  EXPECT_NE(near.of(Op::attn_in, 0), near.of(Op::attn_in, 1));
}

// A longer context costs the layers that see all keys alone: 15 of 60, and 9 of 48. Keys of a head
// have 256 numbers and as many values there, and 192 and 128 here.
TEST(StageEstimate, ContextCostsTheLayersThatSeeIt) {
  const struct {
    const char* folder;
    double layers, bytes_a_key;
  } cases[] = {{kHybrid, 15, 2.0 * 2 * (256 + 256)}, {kWindowed, 9, 2.0 * 4 * (192 + 128)}};
  for (const auto& one : cases) {
    const ModelChoice choice = choice_of(one.folder);
    const ModelCost cost = cost_of(choice);
    const PassShape near = cost.decode(8, 4000), far = cost.decode(8, 8000);
    EXPECT_NEAR(cost.bytes(far) - cost.bytes(near), 8 * 4000 * one.layers * one.bytes_a_key, 1)
        << one.folder;
    const StageEstimate estimate(choice, cost, {.speed = kSpeed});
    const Bucket less{Phase::decode, 8, 8 * 4000}, more{Phase::decode, 8, 8 * 8000};
    for (const Op op : {Op::attn_in, Op::gate, Op::shared, Op::experts})
      EXPECT_EQ(estimate.at(less).of(op), estimate.at(more).of(op)) << op_name(op);
    EXPECT_GT(estimate.at(more).of(Op::attn_core), estimate.at(less).of(Op::attn_core));
  }
}

// Ranks share the experts, which get the rows of all; they do not share attention.
TEST(StageEstimate, OfARankOnlyTheExpertsGetCheaper) {
  const ModelChoice choice = choice_of("configs/deepseek_v3");
  const ModelCost cost = cost_of(choice);
  const StageEstimate alone(choice, cost, {.speed = kSpeed});
  const StageEstimate four(choice, cost, {.speed = kSpeed, .num_ranks = 4});
  const Bucket bucket{Phase::decode, 16, 16'000};
  for (const Op op : {Op::attn_in, Op::attn_core, Op::mlp, Op::gate, Op::shared})
    EXPECT_EQ(alone.at(bucket).of(op), four.at(bucket).of(op)) << op_name(op);
  EXPECT_LT(four.at(bucket).of(Op::experts), alone.at(bucket).of(Op::experts));
  // 64 rows hit experts of which each rank reads a quarter.
  const Bucket all{Phase::decode, 64, 64'000};
  EXPECT_GT(four.at(bucket).of(Op::experts), alone.at(all).of(Op::experts) / 4);
  EXPECT_EQ(alone.bytes(bucket).dispatch, 0);
  EXPECT_EQ(alone.at(bucket).dispatch.busy_us, 0);
}

// With E = 256 and k = 8 a row has 1.0, 2.7 and 4.6 remote copies on 2, 4 and 8 ranks, and an
// answer's row in several parts 4, 6 and 7, one for each expert; hidden is 7168 in bf16.
TEST(StageEstimate, BytesAreThoseOfTheFormula) {
  constexpr double kRow = 7168 * 2, kLists = 8 * 8;
  ModelChoice choice = choice_of("configs/deepseek_v3");
  const ModelCost cost = cost_of(choice);
  const struct {
    int ranks;
    double distinct, each;
  } cases[] = {{2, 1.0, 4}, {4, 2.7, 6}, {8, 4.6, 7}};
  for (const auto& one : cases) {
    const StageEstimate estimate(choice, cost, {.speed = kSpeed, .num_ranks = one.ranks});
    const Bucket prompt{Phase::prefill, 1000, 500'500}, answers{Phase::decode, 1000, 1'000'000};
    for (const Bucket& bucket : {prompt, answers}) {
      const StageBytes once = estimate.bytes(bucket);
      EXPECT_NEAR(once.dispatch / (1000 * (kRow + kLists)), one.distinct, 0.05);
      EXPECT_NEAR(once.combine / (1000 * kRow), one.distinct, 0.05);
    }
    EXPECT_EQ(estimate.at(prompt).dispatch.spread, 1);
    const StageBytes parts = estimate.bytes_in_parts(answers);
    EXPECT_NEAR(parts.dispatch / (1000 * kRow), one.each, 1e-9);
    EXPECT_NEAR(parts.combine / (1000 * kRow), one.each, 1e-9);
    EXPECT_NEAR(estimate.at(answers).combine.spread, one.each / one.distinct, 0.05);
  }
  choice.combine_groups = 256;
  choice.dispatch_dtype = DType::int8;
  const StageEstimate fine(choice, cost, {.speed = kSpeed, .num_ranks = 4});
  const StageBytes counted = fine.bytes({Phase::prefill, 1000, 500'500});
  // Groups are summed at their rank, so their number does not matter where each rank has one node.
  EXPECT_NEAR(counted.combine / (1000 * kRow), 2.7, 0.05);
  EXPECT_NEAR(counted.dispatch / (1000 * (7200 + kLists)), 2.7, 0.05);
  choice.combine_dtype = DType::int8;
  const StageEstimate finest(choice, cost, {.speed = kSpeed, .num_ranks = 4});
  EXPECT_NEAR(finest.bytes({Phase::prefill, 1000, 500'500}).combine / (1000 * 7200), 2.7, 0.05);
}

// On three ranks no fixed node has all experts of one, but two ranks of a row's slots mostly send
// one sum each.
TEST(StageEstimate, SumsAreThoseOfTheRowsOwnNodes) {
  const ModelChoice choice = choice_of("configs/deepseek_v3");
  const StageEstimate three(choice, cost_of(choice), {.speed = kSpeed, .num_ranks = 3});
  const StageBytes bytes = three.bytes({Phase::prefill, 1000, 500'500});
  const double sums = bytes.combine / (1000 * 7168 * 2);
  const double copies = bytes.dispatch / (1000 * (7168 * 2 + 8 * 8));
  EXPECT_GT(sums, copies);
  EXPECT_LT(sums, 1.5 * copies);
}

TEST(StageEstimate, LinksCarryBytesAndCoresMoveThem) {
  const ModelChoice choice = choice_of("configs/deepseek_v3");
  const ModelCost cost = cost_of(choice);
  StageEstimateInput input{.speed = kSpeed, .num_ranks = 2, .link = {10, 50, 0}};
  const Bucket bucket{Phase::prefill, 1024, 1024 * 512};
  const StageEstimate free(choice, cost, input);
  const StageTimes times = free.at(bucket);
  EXPECT_NEAR(times.dispatch.busy_us, free.bytes(bucket).dispatch * 8 / 10e3, 1e-9);
  EXPECT_EQ(times.combine.latency_us, 50);
  input.link.core_s_per_gb = 1.2;
  const StageTimes taxed = StageEstimate(choice, cost, input).at(bucket);
  const auto tax = [&](Op start, Op wait) {
    return taxed.of(start) + taxed.of(wait) - times.of(start) - times.of(wait);
  };
  EXPECT_NEAR(tax(Op::dispatch_start, Op::dispatch_wait), free.bytes(bucket).dispatch * 1.2e-3,
              1e-6);
  EXPECT_NEAR(tax(Op::combine_start, Op::combine_wait), free.bytes(bucket).combine * 1.2e-3, 1e-6);
}

// A row of an answer travels once for each expert as soon as there are two parts, and not more
// often in eight.
TEST(StageEstimate, CoresMoveTheBytesOfPartsOnceWhateverTheirNumber) {
  const ModelChoice choice = choice_of("configs/qwen3_235b_a22b");
  const StageEstimate estimate(choice, cost_of(choice),
                               {.speed = kSpeed, .num_ranks = 2, .link = {10, 50, 1.2}});
  const Bucket answers{Phase::decode, 16, 16'000}, prompt{Phase::prefill, 1024, 1024 * 512};
  const auto added_us = [&](const Bucket& bucket, int parts) {  // in a layer
    const StageTimes times = estimate.at(bucket);
    const auto compute_us = [&](const Grain& grain) {
      return Predictor(std::span(&times, 1), grain, {.num_moe = 1})
          .predict(serial_order())
          .compute_us;
    };
    return compute_us({.parts = parts}) - compute_us({}) - (parts - 1) * times.part_us;
  };
  const StageBytes once = estimate.bytes(answers), each = estimate.bytes_in_parts(answers);
  const double moved_us =
      (each.dispatch + each.combine - once.dispatch - once.combine) * 1.2 / 1e9 * 1e6;
  EXPECT_GT(moved_us, 100);
  for (const int parts : {2, 4, 8}) {
    EXPECT_NEAR(added_us(answers, parts), moved_us, 1e-3) << parts;
    EXPECT_NEAR(added_us(prompt, parts), 0, 1e-3) << parts;
  }
}

TEST(StageEstimate, NothingTravelsInDenseModels) {
  const ModelChoice choice = choice_of("golden/qwen3");
  const StageEstimate estimate(choice, cost_of(choice), {.speed = kSpeed, .num_ranks = 2});
  const StageTimes times = estimate.at({Phase::decode, 4, 400});
  EXPECT_GT(times.of(Op::mlp), 0);
  EXPECT_EQ(times.of(Op::gate) + times.of(Op::experts) + times.dispatch.busy_us, 0);
  EXPECT_EQ(estimate.layers({Phase::decode, 4, 400}).num_moe, 0);
}

TEST(StageEstimate, ARowIsWorthSoManyKeys) {
  // 5 us per row, 2 us per hundred keys, 30 us fixed.
  struct Line final : StageModel {
    StageTimes at(const Bucket& bucket) const override {
      StageTimes times;
      times.of(Op::attn_core) = 30 + 0.02 * static_cast<double>(bucket.kv_tokens);
      times.of(Op::experts) = 3.0 * bucket.rows;
      times.dispatch.busy_us = 2.0 * bucket.rows;
      return times;
    }
  };
  EXPECT_NEAR(keys_per_row(Line(), {Phase::decode, 64, 64'000}), 250, 1e-6);
  EXPECT_NEAR(keys_per_row(Line(), {Phase::decode, 7, 7000}), 250, 1e-6);
  EXPECT_EQ(keys_per_row(Line(), {Phase::decode, 1, 100}), 1e6);
  // Three layers of four read no keys, so a row is worth four times as many.
  const std::array kinds = {AttentionKind::full, AttentionKind::linear, AttentionKind::linear,
                            AttentionKind::linear};
  EXPECT_NEAR(
      keys_per_row(Line(), {Phase::decode, 64, 64'000}, {.num_moe = 8, .kinds = LayerKinds(kinds)}),
      1000, 1e-6);
  const ModelChoice choice = choice_of("configs/qwen3_235b_a22b");
  const double keys = keys_per_row(
      StageEstimate(choice, cost_of(choice), {.speed = kSpeed, .num_ranks = 2, .link = {1, 20, 0}}),
      {Phase::decode, 64, 64 * 2000});
  EXPECT_GT(keys, 100);
  EXPECT_LT(keys, 1e6);
}

}  // namespace
}  // namespace hocket
