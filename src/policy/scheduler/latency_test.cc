// Tests PrefillPolicy::latency in the scheduler; step_times_test.cc tests the estimate behind it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "policy/scheduler/fake_engine_testing.h"

namespace hocket {
namespace {

SchedulerOptions options_with(Duration goal) {
  return {.num_pages = 64,
          .page_tokens = 4,
          .max_running_requests = 8,
          .chunk_tokens = 32,
          .prefill_policy = PrefillPolicy::latency,
          .itl_goal = goal};
}

// An engine whose steps take 0.9 ms plus 0.1 ms a row.
struct TimedEngine : FakeEngine {
  explicit TimedEngine(Duration goal) : TimedEngine(options_with(goal)) {}
  explicit TimedEngine(const SchedulerOptions& options)
      : FakeEngine(options, [](const Request&, auto) { return SampledToken{TokenId{1}, false}; }) {
    slow_down(1);
  }
  void slow_down(int factor) {
    time_steps([factor](const Batch& batch) {
      return factor * std::chrono::microseconds(900 + 100 * batch.num_rows);
    });
  }
};

TEST(LatencyPolicy, NeedsAGoal) {
  const Result<void> checked = check(options_with(Duration(0)));
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().param, "itl-slo-ms");
  EXPECT_TRUE(check(options_with(Duration(1))));
}

TEST(LatencyPolicy, TellsTheChunkAndHowWellItKnowsTheSteps) {
  TimedEngine engine(std::chrono::milliseconds(3));
  ASSERT_TRUE(engine.scheduler().add(numbered_input(1, 8, 150)));
  for (int i = 0; i < 100; ++i) engine.step();
  EXPECT_EQ(engine.scheduler().stats().itl_chunk_tokens, 0);
  EXPECT_LT(engine.scheduler().stats().step_time_error, 0.05);
  ASSERT_TRUE(engine.scheduler().add(numbered_input(2, 70, 1)));
  for (int i = 0; i < 4; ++i) engine.step();
  // 20 rows take 3 ms, one of them for the running request.
  EXPECT_NEAR(engine.scheduler().stats().itl_chunk_tokens, 19, 1);
  EXPECT_EQ(engine.problem(), "");
}

// Gives each answer four drafts, which fail.
struct FourDrafts final : SchedulerHooks {
  void offer_drafts(std::span<AnswerDrafts> answers, const DraftedStep& /*step*/) override {
    for (AnswerDrafts& answer : answers)
      answer.drafts = std::span(drafts).first(static_cast<size_t>(std::min(answer.max_drafts, 4)));
  }
  const std::array<TokenId, 4> drafts = {TokenId{2}, TokenId{2}, TokenId{2}, TokenId{2}};
};

TEST(LatencyPolicy, LeavesTimeForTheDraftsOfAnswers) {
  FourDrafts hooks;
  SchedulerOptions options = options_with(std::chrono::milliseconds(3));
  options.max_decode_rows = 40;
  options.hooks = &hooks;
  TimedEngine engine(options);
  ASSERT_TRUE(engine.scheduler().add(numbered_input(1, 8, 150)));
  for (int i = 0; i < 100; ++i) engine.step();
  ASSERT_TRUE(engine.scheduler().add(numbered_input(2, 70, 1)));
  for (int i = 0; i < 4; ++i)
    engine.step([](const Batch& batch) {
      EXPECT_EQ(batch.num_drafts, 4);
      EXPECT_LE(batch.num_rows, 21);
    });
  // 20 rows take 3 ms: 5 of them are the running request's.
  EXPECT_NEAR(engine.scheduler().stats().itl_chunk_tokens, 15, 1);
  EXPECT_EQ(engine.problem(), "");
}

TEST(LatencyPolicy, FollowsAMachineThatBecomesBusy) {
  TimedEngine engine(std::chrono::milliseconds(3));
  ASSERT_TRUE(engine.scheduler().add(numbered_input(1, 8, 200)));
  ASSERT_TRUE(engine.scheduler().add(numbered_input(2, 70, 1)));
  for (int i = 0; i < 60; ++i) engine.step();
  const int before = engine.scheduler().stats().itl_chunk_tokens;
  engine.slow_down(2);
  for (int i = 0; i < 40; ++i) engine.step();
  ASSERT_TRUE(engine.scheduler().add(numbered_input(3, 20, 1)));
  engine.step();
  EXPECT_GE(before, 12);
  // Steps take 1.8 ms plus 0.2 ms a row, which leaves 5 rows beside the running request.
  EXPECT_NEAR(engine.scheduler().stats().itl_chunk_tokens, 5, 1);
}

}  // namespace
}  // namespace hocket
