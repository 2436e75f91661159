// Tests the planner where searches take time, which it has little of.
#include <gtest/gtest.h>

#include <random>

#include "compute/overlap/planner_testing.h"

namespace hocket {
namespace {

using testing::PlannerTest;
using testing::Server;
using testing::StageMachine;

// Each call of now() advances the clock by one tick.
class CountingClock final : public Clock {
 public:
  explicit CountingClock(Duration tick) : tick_(tick) {}
  TimePoint now() const override { return TimePoint(tick_ * ++num_looks_); }

 private:
  Duration tick_;
  mutable int64_t num_looks_ = 0;
};

// A rank of `hocket demo`: two ranks in one process share a small model without shared experts, and
// a link of 1 Gbit/s joins them. `fixed` is the share of an operation's time for four rows that is
// the same for any rows.
class DemoMachine final : public StageModel {
 public:
  DemoMachine(double fixed, double level) : fixed_(fixed), level_(level) {}
  StageTimes at(const Bucket& bucket) const override {
    const double rows = bucket.rows;
    StageTimes times;
    times.of(Op::attn_in) = 30;
    times.of(Op::attn_core) = 20;
    times.of(Op::gate) = 4;
    times.of(Op::experts) = 50;
    for (const Op op : {Op::dispatch_start, Op::dispatch_wait, Op::combine_start, Op::combine_wait})
      times.of(op) = 7;
    for (double& time : times.compute) time *= level_ * (fixed_ + (1 - fixed_) * rows / 4);
    times.dispatch = times.combine = {.busy_us = 4.3 * rows, .latency_us = 20, .spread = 2};
    times.part_us = 30, times.wave_us = 20;
    return times;
  }

 private:
  const double fixed_, level_;
};

// Serves as many steps as the demo, and returns how much faster they were than without overlap.
// Round 0 is not counted, as there.
double gain_of_demo(const DemoMachine& machine, const Planner::Options& options, uint32_t seed) {
  constexpr int kRounds = 6, kTokens = 64;
  constexpr double kNoise = 0.15;
  const Bucket answers{Phase::decode, 4, 4 * 60}, prompts{Phase::prefill, 70, 70 * 10};
  Server server(machine, options, kNoise, seed);
  server.other_us = 150;
  server.asks_both = true;
  double first_round_us = 0;
  for (int round = 0; round < kRounds; ++round) {
    server.step(prompts);
    for (int step = 0; step < kTokens; ++step) server.step(answers);
    if (round == 0) first_round_us = server.all_us;
  }
  EXPECT_EQ(kind_of(server.plan_now(answers), *options.orders), PlanKind::two_batch) << seed;
  const double none_us =
      (kRounds - 1) * (server.true_us(prompts, {}) + kTokens * server.true_us(answers, {}));
  return none_us / (server.all_us - first_round_us) - 1;
}

// Weights of a small model stay in the cache, so halves cost little. The forecast does not know
// that, so trials must show it. A step takes a millisecond, and so does each search, as in a build
// without optimization: hardly any is paid for after the first trial.
TEST_F(PlannerTest, TrialsCountWhereStepsAreTooShortForSearches) {
  constexpr uint32_t kSeeds = 8;
  double sum = 0;
  int count = 0;
  for (const double fixed : {0.15, 0.3})
    for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
      const CountingClock clock(std::chrono::microseconds(1000));
      const DemoMachine machine(fixed, 1);
      sum += gain_of_demo(machine,
                          {.orders = &OrderTable::builtin(),
                           .layers = {.num_moe = 4},
                           .prior = std::make_shared<DemoMachine>(0.9, 1.5),
                           .clock = &clock},
                          seed);
      ++count;
    }
  fmt::print("mean gain in as many steps as the demo's: {:.1f} %\n", 100 * sum / count);
  EXPECT_GE(sum / count, 0.12);
}

TEST_F(PlannerTest, SearchesForASmallShareOfTheTime) {
  const CountingClock clock(std::chrono::microseconds(500));
  const StageMachine machine;
  Planner::Options ticking = options(prior_like(machine));
  ticking.clock = &clock;
  Server server(machine, ticking, 0.1);
  std::mt19937 random(7);
  for (int step = 0; step < 3000; ++step) server.step(decode(1 + static_cast<int>(random() % 500)));
  const PlannerState state = server.planner().state();
  EXPECT_GT(state.num_searches, 10u);
  EXPECT_LE(state.search_seconds, kTuning.search_share * server.all_us / 1e6 + 0.006);
}

}  // namespace
}  // namespace hocket
