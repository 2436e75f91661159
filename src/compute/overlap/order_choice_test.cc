// Tests what is known of orders in general (docs/contracts/overlap.md, "Prediction"): the closed
// forms of published orders, and that no order is best everywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "compute/overlap/prediction.h"
#include "compute/overlap/stage_testing.h"
#include "compute/overlap/testing.h"

namespace hocket {
namespace {

// The times of one half: attention in two pieces, shared expert, experts, dispatch and combine.
struct Stages {
  double a0, a1, s, m, d, k;

  // as_latency: transfers have only latency, so they do not disturb each other. Else they occupy
  // the link, one after the other.
  StageTimes times(bool as_latency = false) const {
    StageTimes made;
    made.of(Op::attn_in) = a0, made.of(Op::attn_core) = a1;
    made.of(Op::shared) = s, made.of(Op::experts) = m;
    made.dispatch = as_latency ? TransferTime{0, d} : TransferTime{d, 0};
    made.combine = as_latency ? TransferTime{0, k} : TransferTime{k, 0};
    return made;
  }
  double a() const { return a0 + a1; }
  double five_stage() const { return 2 * (std::max(d, s + a0) + m + std::max(k, a1)); }
  double four_phase() const {
    return std::max(d, a()) + std::max(d, m) + std::max(k, s + m) + std::max(k, s + a());
  }
  double lightllm() const {
    return std::max(k, a()) + s + std::max(d, a()) + s + std::max(d, m) + std::max(k, m);
  }
};

// Returns what a layer takes in the steady state.
double period(const Order& order, const Stages& stages, bool as_latency = true) {
  const std::array halves = {stages.times(as_latency), stages.times(as_latency)};
  const auto step_us = [&](int num_moe) {
    return Predictor(halves, Grain{}, {.num_moe = num_moe, .has_shared = true}).step_us(order);
  };
  return (step_us(120) - step_us(60)) / 60;
}

Stages drawn(std::mt19937& random) {
  const StageTimes times = testing::StageTimeSampler{}(random);
  return {.a0 = times.of(Op::attn_in),
          .a1 = times.of(Op::attn_core),
          .s = times.of(Op::shared),
          .m = times.of(Op::experts),
          .d = times.dispatch.busy_us,
          .k = times.combine.busy_us};
}

TEST(Orders, PublishedOnesTakeTheirClosedForms) {
  const Stages long_context{60, 220, 30, 80, 90, 170}, short_context{60, 80, 30, 120, 90, 170},
      few_experts{60, 100, 30, 250, 90, 170};
  const Order& five_stage = testing::order_named("sglang-decode");
  const Order& four_phase = testing::order_named("four-phase");
  const Order& lightllm = testing::order_named("lightllm-decode");
  EXPECT_DOUBLE_EQ(period(five_stage, long_context), 780);
  EXPECT_DOUBLE_EQ(period(four_phase, long_context), 850);
  EXPECT_DOUBLE_EQ(period(lightllm, long_context), 880);
  EXPECT_DOUBLE_EQ(period(five_stage, short_context), 760);
  EXPECT_DOUBLE_EQ(period(four_phase, short_context), 600);
  EXPECT_DOUBLE_EQ(period(lightllm, short_context), 660);
  EXPECT_DOUBLE_EQ(period(five_stage, few_experts), 1020);
  EXPECT_DOUBLE_EQ(period(four_phase, few_experts), 880);
  EXPECT_DOUBLE_EQ(period(lightllm, few_experts), 890);
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const Stages stages = drawn(random);
    EXPECT_NEAR(period(five_stage, stages), stages.five_stage(), 1e-3);
    EXPECT_NEAR(period(four_phase, stages), stages.four_phase(), 1e-3);
    EXPECT_NEAR(period(lightllm, stages), stages.lightllm(), 1e-3);
    // Sending before the shared expert costs nothing.
    EXPECT_LE(period(testing::order_named("lightllm-decode-late-shared"), stages),
              period(lightllm, stages) + 1e-3);
  }
}

// So the planner must choose: any fixed order is slower than another one in some cases.
TEST(Orders, NoneIsBestEverywhere) {
  constexpr int kRounds = 20'000;
  double five = 0, four = 0, light = 0, five_best = 0;
  std::mt19937 random(2);
  for (int round = 0; round < kRounds; ++round) {
    const Stages s = drawn(random);
    const double best = std::min({s.five_stage(), s.four_phase(), s.lightllm()});
    five += s.five_stage() / best - 1, four += s.four_phase() / best - 1;
    light += s.lightllm() / best - 1;
    five_best += s.five_stage() < std::min(s.four_phase(), s.lightllm()) ? 1 : 0;
  }
  const double percent = 100.0 / kRounds;
  fmt::print(
      "always five-stage costs {:.1f} %, four-phase {:.1f} %, LightLLM's {:.1f} %; "
      "five-stage is best in {:.0f} %\n",
      five * percent, four * percent, light * percent, five_best * percent);
  EXPECT_NEAR(five * percent, 11.8, 1);
  EXPECT_NEAR(four * percent, 1.5, 0.5);
  EXPECT_NEAR(light * percent, 4.6, 1);
  EXPECT_GT(five_best * percent, 10);
}

}  // namespace
}  // namespace hocket
