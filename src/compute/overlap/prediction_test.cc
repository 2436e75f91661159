// Compares predictions with the executor over the loopback in virtual time, to the nanosecond.
#include "compute/overlap/prediction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "compute/comm/testing.h"
#include "compute/overlap/spent_testing.h"
#include "compute/overlap/stage_player_testing.h"
#include "compute/overlap/stage_testing.h"
#include "compute/overlap/testing.h"
#include "compute/overlap/tuning.h"

namespace hocket {
namespace {

using testing::StageTimeSampler;

constexpr double kBytesPerSecond = 1e9;  // one byte per nanosecond

// The measured time of a plan, and the part of it that was waiting.
struct MeasuredTime {
  Duration step{}, exposed{};
};

class Waits final : public ExchangeListener {
 public:
  void finished(int, MessageKind, Stamp, const ExchangeTimes& times) override {
    exposed += times.wait_out - times.wait_in;
  }
  Duration exposed{};
};

MeasuredTime play_for_real(const PlanTimes& plan, const LayerCounts& layers, int num_ranks) {
  double longest_us = 0;
  for (const StageTimes& half : plan.halves)
    longest_us =
        std::max({longest_us, half.dispatch.busy_in(plan.grain), half.combine.busy_in(plan.grain)});
  const Duration latency(std::llround(plan.halves[0].dispatch.latency_us * 1e3));
  LoopbackHub hub(num_ranks, {.bytes_per_s = kBytesPerSecond, .latency = latency},
                  LoopbackHub::Time::virtual_time);
  std::vector<MeasuredTime> played(static_cast<size_t>(num_ranks));
  testing::on_ranks(hub, num_ranks, [&](Transport& end) {
    Waits waits;
    auto player = StagePlayer::create(end, {.layers = layers,
                                            .bytes_per_s = kBytesPerSecond,
                                            .longest_busy_us = longest_us,
                                            .watch = &waits});
    ASSERT_TRUE(player.has_value());
    testing::SpentTimes work(hub, end.rank());
    const TimePoint begin = end.now();
    const auto done = (*player)->play(plan, work);
    work.spend_rest();
    EXPECT_TRUE(done.has_value()) << done.error().message;
    played[static_cast<size_t>(end.rank())] = {end.now() - begin, waits.exposed};
  });
  for (const MeasuredTime& other : played) EXPECT_EQ(other.step, played[0].step);
  return played[0];
}

int64_t ns(double us) {
  return std::llround(us * 1e3);
}

void expect_as_played(const PlanTimes& plan, const LayerCounts& layers, int num_ranks) {
  const Prediction predicted = predict(plan, layers);
  const MeasuredTime played = play_for_real(plan, layers, num_ranks);
  EXPECT_EQ(ns(predicted.step_us), played.step.count())
      << plan.order.name << " x " << plan.grain.parts << " x " << plan.grain.waves;
  EXPECT_EQ(ns(predicted.exposed_us), played.exposed.count()) << plan.order.name;
}

// Draws halves of unequal sizes, with and without dense layers and shared experts.
struct DrawnTimes {
  explicit DrawnTimes(std::mt19937& random) {
    const StageTimeSampler draw{.latency_us = static_cast<double>(random() % 3 * 12)};
    halves = {draw(random), draw(random)};
    layers = {.num_dense = static_cast<int>(random() % 4),
              .num_moe = static_cast<int>(1 + random() % 6),
              .has_shared = random() % 2 == 0};
  }
  PlanTimes plan(const Order& order, const Grain& grain) const {
    return {order, std::span(halves).first(static_cast<size_t>(order.num_halves)), grain};
  }
  std::vector<StageTimes> halves;
  LayerCounts layers;
};

const Grain& any_grain(std::mt19937& random) {
  return kTuning.grains[random() % kTuning.grains.size()];
}

TEST(Prediction, IsWhatEveryNamedOrderTakes) {
  std::mt19937 random(1);
  const OrderTable& table = OrderTable::builtin();
  int round = 0;
  for (int index = 0; index < table.size(); ++index)
    for (const Grain& grain : kTuning.grains) {
      const DrawnTimes drawn(random);
      const int num_ranks = ++round % 3 == 0 ? 4 : 2;
      expect_as_played(drawn.plan(table.at(index), grain), drawn.layers, num_ranks);
    }
}

// Waves of sums that are not equally long end between two nanoseconds.
TEST(Prediction, IsWhatWavesOfExpertsTake) {
  std::mt19937 random(7);
  const OrderTable& table = OrderTable::builtin();
  for (const int waves : {2, 4, 8})
    for (int index = 0; index < table.size(); ++index) {
      DrawnTimes drawn(random);
      for (StageTimes& half : drawn.halves)
        half.dispatch.spread = half.combine.spread = 1 + static_cast<double>(random() % 30) / 10;
      const PlanTimes plan = drawn.plan(table.at(index), {.waves = waves});
      const double predicted_us = predict(plan, drawn.layers).step_us;
      EXPECT_NEAR(predicted_us, to_us(play_for_real(plan, drawn.layers, 3).step), 1)
          << plan.order.name << " x " << waves;
    }
}

TEST(Prediction, IsWhatAnyLegalOrderTakes) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    const Order order =
        round % 2 == 0 ? testing::random_order(random) : testing::tight_order(random);
    const DrawnTimes drawn(random);
    expect_as_played(drawn.plan(order, any_grain(random)), drawn.layers, round % 4 == 0 ? 4 : 2);
  }
}

// Computes the recurrence as the contract writes it, layer by layer, with one part per transfer.
double slowly_us(const PlanTimes& plan, const LayerCounts& layers) {
  struct TransferTimes {
    double there = 0, back = 0;
  };
  std::array<TransferTimes, 2> travel;
  double now = 0, busy = 0;
  const auto send = [&](const TransferTime& time) {
    busy = std::max(now, busy) + time.busy_us;
    return busy + time.latency_us;
  };
  const int num_layers = layers.num_layers();
  for (int tick = 0; tick < num_layers + plan.order.max_lag(); ++tick)
    for (const Slot& slot : plan.order.slots) {
      const int layer = tick - slot.lag;
      if (layer < 0 || layer >= num_layers) continue;
      const OpGraph& graph = layer < layers.num_dense ? dense_graph()
                             : layers.has_shared      ? shared_moe_graph()
                                                      : moe_graph();
      if (!graph.has(slot.op)) continue;
      const StageTimes& times = plan.halves[slot.half];
      const int kind = layers.kinds.of(layer);
      TransferTimes& its = travel[slot.half];
      if (slot.op == Op::dispatch_wait) now = std::max(now, its.there);
      if (slot.op == Op::combine_wait) now = std::max(now, its.back);
      now += times.of(slot.op, kind);
      if (slot.op == Op::dispatch_start) its.there = send(times.dispatch);
      if (slot.op == Op::combine_start) its.back = send(times.combine);
    }
  return now;
}

TEST(Prediction, WhatIsCountedIsWhatWouldBePlayed) {
  std::mt19937 random(8);
  for (int round = 0; round < 4000; ++round) {
    const Order order = testing::random_order(random);
    DrawnTimes drawn(random);
    drawn.layers.num_moe = static_cast<int>(random() % 100);
    const PlanTimes plan = drawn.plan(order, {});
    ASSERT_EQ(ns(predict(plan, drawn.layers).step_us), ns(slowly_us(plan, drawn.layers))) << round;
  }
}

TEST(Prediction, ManyLayersTakeWhatOneByOneTakes) {
  std::mt19937 random(4);
  for (int round = 0; round < 12; ++round) {
    const Order order = testing::random_order(random);
    DrawnTimes drawn(random);
    drawn.layers.num_moe = static_cast<int>(40 + random() % 30);
    expect_as_played(drawn.plan(order, any_grain(random)), drawn.layers, 2);
  }
}

// Sequences of kinds as models have them: one full layer after three linear ones, windows in turn
// with full layers, and a list that nothing repeats.
std::vector<std::vector<AttentionKind>> hybrids() {
  constexpr auto kFull = AttentionKind::full, kWindow = AttentionKind::window,
                 kLatent = AttentionKind::latent, kLinear = AttentionKind::linear;
  std::vector<AttentionKind> uneven(100, kLinear);
  for (const int layer : {0, 3, 7, 11, 12, 20, 33, 34, 50, 71}) uneven[layer] = kLatent;
  return {{kLinear, kLinear, kLinear, kFull}, {kWindow, kFull}, uneven};
}

DrawnTimes draw_hybrid(std::mt19937& random, std::span<const AttentionKind> kinds) {
  DrawnTimes drawn(random);
  drawn.layers.kinds = LayerKinds(kinds);
  const StageTimeSampler draw;
  for (StageTimes& half : drawn.halves) {
    half.of(Op::attn_in, 1) = draw.draw(random, 30, 200);
    half.of(Op::attn_core, 1) = draw.draw(random, 10, 900);
  }
  return drawn;
}

TEST(Prediction, AHybridTakesWhatIsPlayed) {
  std::mt19937 random(14);
  const OrderTable& table = OrderTable::builtin();
  for (const std::vector<AttentionKind>& kinds : hybrids())
    for (int index = 0; index < table.size(); ++index) {
      DrawnTimes drawn = draw_hybrid(random, kinds);
      drawn.layers.num_moe = static_cast<int>(1 + random() % 40);
      expect_as_played(drawn.plan(table.at(index), any_grain(random)), drawn.layers, 2);
    }
}

TEST(Prediction, AHybridTakesWhatItsLayersTakeOneByOne) {
  std::mt19937 random(15);
  const std::vector<std::vector<AttentionKind>> all = hybrids();
  for (int round = 0; round < 3000; ++round) {
    const Order order = testing::random_order(random);
    DrawnTimes drawn = draw_hybrid(random, all[random() % all.size()]);
    drawn.layers.num_moe = static_cast<int>(random() % 100);
    const PlanTimes plan = drawn.plan(order, {});
    ASSERT_EQ(ns(predict(plan, drawn.layers).step_us), ns(slowly_us(plan, drawn.layers))) << round;
    const double bound = Predictor(plan.halves, {}, drawn.layers).lower_bound_us();
    ASSERT_LE(bound, predict(plan, drawn.layers).step_us) << round;
  }
}

TEST(Prediction, OneKindTakesTheSameWhateverItIs) {
  std::mt19937 random(16);
  DrawnTimes drawn(random);
  drawn.layers.num_moe = 20;
  const PlanTimes plan = drawn.plan(OrderTable::builtin().at(1), {});
  const Prediction unnamed = predict(plan, drawn.layers);
  for (const AttentionKind kind : {AttentionKind::window, AttentionKind::linear}) {
    drawn.layers.kinds = LayerKinds(std::span(&kind, 1));
    const Prediction named = predict(plan, drawn.layers);
    EXPECT_EQ(named.step_us, unnamed.step_us);
    EXPECT_EQ(named.exposed_us, unnamed.exposed_us);
    EXPECT_EQ(named.compute_us, unnamed.compute_us);
  }
}

TEST(Prediction, TheSerialStepIsTheSumOfItsParts) {
  std::mt19937 random(5);
  const DrawnTimes drawn(random);
  const StageTimes& half = drawn.halves[0];
  const LayerCounts layers{.num_dense = 2, .num_moe = 5, .has_shared = true, .other_us = 77};
  double dense = 0, moe = 0;
  for (const Op op : dense_graph().ops) dense += half.of(op);
  for (const Op op : shared_moe_graph().ops) moe += half.of(op);
  const double exposed = half.dispatch.busy_us + half.dispatch.latency_us + half.combine.busy_us +
                         half.combine.latency_us;
  const Prediction serial = predict(drawn.plan(serial_order(), {}), layers);
  EXPECT_EQ(ns(serial.step_us), ns(2 * dense + 5 * (moe + exposed) + 77));
  EXPECT_EQ(ns(serial.exposed_us), ns(5 * exposed));
  EXPECT_EQ(ns(serial.compute_us), ns(2 * dense + 5 * moe));
}

TEST(Prediction, NoPlanBeatsTheLowerBound) {
  std::mt19937 random(6);
  for (int round = 0; round < 2000; ++round) {
    const Order order = testing::random_order(random);
    const DrawnTimes drawn(random);
    const PlanTimes plan = drawn.plan(order, any_grain(random));
    const double bound = Predictor(plan.halves, plan.grain, drawn.layers).lower_bound_us();
    EXPECT_LE(bound, predict(plan, drawn.layers).step_us) << round;
  }
}

}  // namespace
}  // namespace hocket
