// Tests what the planner does with buckets that it is asked for.
#include <gtest/gtest.h>

#include <vector>

#include "compute/overlap/planner_testing.h"

namespace hocket {
namespace {

using testing::PlannerTest;
using testing::Server;
using testing::StageMachine;

// Steps may turn out larger than was foreseen. The bucket that was asked learns from them, too.
TEST_F(PlannerTest, SearchesABucketAnewWhoseStepsAreReportedInAnother) {
  StageMachine machine;
  machine.link_gbit = 1;
  Server server(machine, options(prior_like(machine)), 0);
  for (int step = 0; step < 300; ++step) {
    server.planner().choose(decode(64));
    const StepReport report = server.played(decode(96), {});
    server.planner().note(std::span(&report, 1));
  }
  EXPECT_GT(server.planner().state().num_searches, 5u);
  EXPECT_LE(regret(server, decode(64)), kTuning.other_kind + 0.005);
  const std::vector<OverlapDecision> decisions = server.planner().state().decisions;
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0].num_steps, 0u);
  EXPECT_NEAR(decisions[0].predicted_us / server.true_us(decode(64), decisions[0].plan), 1, 0.05);
}

TEST_F(PlannerTest, ATrialIsProposedInItsOwnBucketAlone) {
  StageMachine machine;
  machine.link_gbit = 2;
  Server server(machine, options(prior_like(machine)), 0.02);
  for (int step = 0; step < 20; ++step) server.step(decode(8));
  int steps = 0;
  while (steps < 200 && !server.planner().choose(decode(64)).is_trial)
    server.step(decode(64)), ++steps;
  ASSERT_LT(steps, 200);
  EXPECT_FALSE(server.planner().choose(decode(8)).is_trial);
  EXPECT_TRUE(server.planner().choose(decode(64)).is_trial);
}

// The link is so slow that both phases would overlap if they might.
TEST_F(PlannerTest, EachPhasePlaysItsOwnChoice) {
  StageMachine machine;
  machine.link_gbit = 0.5;
  const Plan of_prompts{.order = OrderTable::builtin().find("lightllm-prefill")};
  const OverlapChoice forced{.mode = OverlapChoice::Mode::order, .order = of_prompts.order},
      none{.mode = OverlapChoice::Mode::none};
  for (const bool are_swapped : {false, true}) {
    Planner::Options own = options(prior_like(machine));
    own.choices[index_of(Phase::prefill)] = are_swapped ? none : forced;
    own.choices[index_of(Phase::decode)] = are_swapped ? forced : none;
    Server server(machine, own, 0.02);
    server.asks_both = true;
    const Bucket prompts{Phase::prefill, 64, 64 * 500};
    for (int step = 0; step < 100; ++step) {
      server.step(prompts);
      server.step(decode(64));
      EXPECT_EQ(server.plan_now(prompts), are_swapped ? Plan{} : of_prompts) << step;
      EXPECT_EQ(server.plan_now(decode(64)), are_swapped ? of_prompts : Plan{}) << step;
    }
  }
}

// The prior is right and knows faster orders of two halves.
TEST_F(PlannerTest, ForcedHalvesBeginWithTheOrdersOfSGLang) {
  StageMachine machine;
  machine.link_gbit = 0.5;
  Planner::Options forced = options(std::make_shared<StageMachine>(machine));
  forced.choices.fill({.mode = OverlapChoice::Mode::two_batch});
  const OrderTable& orders = OrderTable::builtin();
  int num_left = 0;
  for (const auto& [phase, name] :
       {std::pair(Phase::prefill, "sglang-prefill"), std::pair(Phase::decode, "sglang-decode")}) {
    const Bucket bucket{phase, 64, 64 * 500};
    const Plan first{.order = orders.find(name)};
    Server server(machine, forced, 0);
    for (int step = 0; step < 10; ++step) {
      EXPECT_EQ(server.plan_now(bucket), first) << name << ", step " << step;
      server.step(bucket);
    }
    for (int step = 0; step < 50; ++step) server.step(bucket);
    num_left += server.plan_now(bucket) != first ? 1 : 0;
    EXPECT_EQ(kind_of(server.plan_now(bucket), orders), PlanKind::two_batch);
    EXPECT_LE(regret_of_two_batch(server, bucket), 0.011) << name;
  }
  EXPECT_GT(num_left, 0);
}

}  // namespace
}  // namespace hocket
