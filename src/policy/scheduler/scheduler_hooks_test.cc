// Tests the places of the questions in a step; tests/scenarios (held_*, sync_*) test what
// follows from the answers.
#include "policy/scheduler/scheduler_hooks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "policy/scheduler/fake_engine_testing.h"
#include "policy/scheduler/fake_scheduler_hooks_testing.h"

namespace hocket {
namespace {

SampledToken one(const Request& /*request*/, std::span<const TokenId> /*history*/) {
  return {TokenId{1}, false};
}

// Records every question.
struct Diary final : SchedulerHooks {
  std::vector<std::string> lines;
  bool moved_before_agree = false;

  Result<bool> ready(const Request& request) override {
    lines.push_back(fmt::format("ready {}", value(request.id)));
    return lines.size() > 2;
  }
  bool may_begin() override {
    lines.push_back("may_begin");
    return true;
  }
  bool any_rank_computes(const Batch& mine) override {
    lines.push_back(
        fmt::format("agree {} rows of mode {}", mine.num_rows, static_cast<int>(mine.mode)));
    for (const Slice& slice : mine.slices)
      moved_before_agree |=
          slice.request->computed_len != slice.begin || slice.request->num_batches > 0;
    return true;
  }
};

TEST(SchedulerHooksTest, EachQuestionHasItsPlaceInTheStep) {
  Diary diary;
  FakeEngine engine(
      {.num_pages = 16, .page_tokens = 4, .prefill_policy = PrefillPolicy::mixed, .hooks = &diary},
      one);
  const auto mode = [](ForwardMode m) { return std::to_string(static_cast<int>(m)); };
  ASSERT_TRUE(engine.scheduler().add(numbered_input(1, 5, 3)));  // it is not ready
  ASSERT_TRUE(engine.step());                                    // still not ready: an idle step
  ASSERT_TRUE(engine.step());
  ASSERT_TRUE(engine.scheduler().add(numbered_input(2, 6, 1)));
  ASSERT_TRUE(engine.step());
  ASSERT_TRUE(engine.step());
  EXPECT_EQ(diary.lines,
            (std::vector<std::string>{"ready 1", "ready 1",
                                      "agree 0 rows of mode " + mode(ForwardMode::idle),  //
                                      "ready 1", "may_begin",
                                      "agree 5 rows of mode " + mode(ForwardMode::extend),  //
                                      "ready 2", "may_begin",
                                      "agree 7 rows of mode " + mode(ForwardMode::mixed),  //
                                      "agree 1 rows of mode " + mode(ForwardMode::decode)}));
  EXPECT_FALSE(diary.moved_before_agree) << "rows count as computed before all have agreed";
  EXPECT_EQ(engine.problem(), "");
}

TEST(SchedulerHooksTest, WhoOffersDraftsIsToldOfPrompts) {
  for (const PrefillPolicy policy : {PrefillPolicy::mixed, PrefillPolicy::prefill_first}) {
    FakeSchedulerHooks hooks;
    FakeEngine engine({.num_pages = 64,
                       .page_tokens = 4,
                       .max_running_requests = 4,
                       .max_decode_rows = 16,
                       .chunk_tokens = 4,
                       .prefill_policy = policy,
                       .hooks = &hooks},
                      one);
    ASSERT_TRUE(engine.scheduler().add(numbered_input(1, 4, 20)));
    ASSERT_TRUE(engine.step());
    ASSERT_TRUE(engine.step());
    EXPECT_EQ(hooks.drafted.max_rows, 15);
    EXPECT_FALSE(hooks.drafted.has_prompts);
    ASSERT_TRUE(engine.scheduler().add(numbered_input(2, 8, 1)));
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(engine.step());
      EXPECT_EQ(hooks.drafted.has_prompts, policy == PrefillPolicy::mixed);
    }
    ASSERT_TRUE(engine.step());
    EXPECT_FALSE(hooks.drafted.has_prompts);
  }
}

// The head is chosen by look-ups in the prefix tree, so it is not chosen where no request could be
// admitted. If it were, the second prompt would be seen to wait for the first, which has the same
// beginning.
TEST(SchedulerHooksTest, NoHeadIsChosenWhereNoneCouldBeAdmitted) {
  enum class Lacks : uint8_t { nothing, slots, states };
  for (const Lacks lacks : {Lacks::nothing, Lacks::slots, Lacks::states}) {
    SCOPED_TRACE(static_cast<int>(lacks));
    SchedulerOptions options{.num_pages = 64, .page_tokens = 4, .chunk_tokens = 16};
    options.in_batch.min_common = 8;
    options.max_running_requests = lacks == Lacks::slots ? 1 : 2;
    if (lacks == Lacks::states)  // the states of the first chunk take all slots until its commit
      options.num_states = 4, options.state_tokens = 4, options.cached_state_interval = 4;
    FakeEngine engine(options, one, true);
    RequestInput second = numbered_input(1, 18, 1);
    second.id = RequestId{2};
    ASSERT_TRUE(engine.scheduler().add(numbered_input(1, 20, 4)));
    ASSERT_TRUE(engine.scheduler().add(std::move(second)));
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(engine.step());
    const SchedulerStats stats = engine.scheduler().stats();
    EXPECT_EQ(stats.num_waiting, 1);
    EXPECT_EQ(stats.num_prefix_waits_total, lacks == Lacks::nothing ? 1u : 0u);
    while (engine.step()) {
    }
    EXPECT_TRUE(engine.scheduler().idle());
    EXPECT_EQ(engine.problem(), "");
  }
}

// Another request runs meanwhile, but none that came later is before it afterwards.
TEST(SchedulerHooksTest, ARequestThatWaitsAgainKeepsItsPlaceInLine) {
  FakeSchedulerHooks hooks;
  Scheduler scheduler(
      {.num_pages = 32, .page_tokens = 4, .max_running_requests = 1, .hooks = &hooks});
  for (const uint64_t id : {1, 2, 3, 4}) ASSERT_TRUE(scheduler.add(numbered_input(id, 8, 1)));
  const auto next = [&] {
    const Batch& batch = scheduler.schedule({});
    EXPECT_EQ(batch.slices.size(), 1u);
    const RequestId id = batch.slices.front().request->id;
    scheduler.commit(batch, std::vector<SampledToken>{{TokenId{1}, false}}, {});
    return value(id);
  };
  hooks.again = {RequestId{2}};
  EXPECT_EQ(next(), 1u);
  EXPECT_EQ(next(), 3u);
  EXPECT_EQ(scheduler.stats().num_held, 1);
  hooks.not_ready.clear();
  EXPECT_EQ(next(), 2u);
  EXPECT_EQ(next(), 4u);
  EXPECT_TRUE(scheduler.idle());
}

// Records the borders whose states the tree got.
struct StateDiary final : SchedulerHooks {
  std::vector<int> borders;

  void on_state_cached(const Request& /*request*/, int len, int /*slot*/) override {
    borders.push_back(len);
  }
};

TEST(SchedulerHooksTest, StatesOfAPromptThatAPeerAwaitsAreAtEndsOfThePeersPages) {
  const std::pair<int, int> kCases[] = {{0, 24}, {4, 24}, {16, 16}};
  for (const auto& [border_tokens, last] : kCases) {
    SCOPED_TRACE(border_tokens);
    StateDiary diary;
    Scheduler scheduler({.num_pages = 32,
                         .page_tokens = 4,
                         .num_states = 8,
                         .state_tokens = 8,
                         .max_running_requests = 2,
                         .hooks = &diary});
    RequestInput input = numbered_input(1, 30, 5);
    input.border_tokens = border_tokens;
    ASSERT_TRUE(scheduler.add(std::move(input)));
    const Batch& batch = scheduler.schedule({});
    scheduler.commit(batch, std::vector<SampledToken>{{TokenId{1}, false}}, {});
    ASSERT_FALSE(diary.borders.empty());
    EXPECT_EQ(diary.borders.back(), last);
    for (const int border : diary.borders) EXPECT_EQ(border % std::max(border_tokens, 8), 0);
  }
}

// Computes the prompt, and one token behind it.
void compute(Scheduler& scheduler, RequestInput input) {
  input.sampling.max_new_tokens = 1;
  ASSERT_TRUE(scheduler.add(std::move(input)));
  const Batch& batch = scheduler.schedule({});
  scheduler.commit(batch, std::vector<SampledToken>{{TokenId{1}, false}}, {});
}

SchedulerOptions with_states_at(int interval, StateDiary& diary) {
  return {.num_pages = 64,
          .page_tokens = 4,
          .num_states = 16,
          .state_tokens = 8,
          .cached_state_interval = interval,
          .max_running_requests = 2,
          .hooks = &diary};
}

// The first 8 tokens are known, and the peer has pages of 16.
TEST(SchedulerHooksTest, StatesBehindAKnownPrefixAreAtEndsOfThePeersPages) {
  StateDiary diary;
  Scheduler scheduler(with_states_at(16, diary));
  compute(scheduler, numbered_input(1, 12, 1));
  ASSERT_EQ(diary.borders, std::vector<int>{8});
  diary.borders.clear();
  RequestInput input = numbered_input(1, 100, 1);
  input.id = RequestId{2};
  input.border_tokens = 16;
  compute(scheduler, std::move(input));
  EXPECT_EQ(diary.borders, (std::vector<int>{16, 32, 48, 64, 80, 96}));
}

// The tree has a state at 24, behind the last end of a page of the peer's.
TEST(SchedulerHooksTest, AKnownPromptLeavesAStateAtTheLastEndOfThePeersPages) {
  StateDiary diary;
  Scheduler scheduler(with_states_at(4096, diary));
  compute(scheduler, numbered_input(1, 30, 1));
  ASSERT_EQ(diary.borders, std::vector<int>{24});
  diary.borders.clear();
  RequestInput input = numbered_input(1, 30, 1);
  input.id = RequestId{2};
  input.border_tokens = 16;
  compute(scheduler, std::move(input));
  ASSERT_FALSE(diary.borders.empty());
  EXPECT_EQ(diary.borders.front(), 16);
}

TEST(SchedulerHooksTest, AnIdleStepIsABatchWithoutRows) {
  FakeSchedulerHooks hooks;
  Scheduler scheduler({.num_pages = 4, .page_tokens = 4, .hooks = &hooks});
  EXPECT_TRUE(scheduler.schedule({}).empty());
  hooks.others_compute = true;
  const Batch& batch = scheduler.schedule({});
  EXPECT_FALSE(batch.empty());
  EXPECT_TRUE(batch.idle_step);
  EXPECT_EQ(batch.mode, ForwardMode::idle);
  EXPECT_EQ(batch.num_rows, 0);
  EXPECT_TRUE(batch.slices.empty());
  scheduler.note_duration(batch, std::chrono::milliseconds(1));
  scheduler.commit(batch, {}, {});
  hooks.others_compute = false;
  EXPECT_TRUE(scheduler.schedule({}).empty());
  EXPECT_EQ(hooks.num_agreements, 3);
  EXPECT_TRUE(scheduler.idle());
  scheduler.check_integrity();
}

TEST(SchedulerHooksTest, RowsOfPromptsAreForeseenWithoutCachedAndHeldOnes) {
  FakeSchedulerHooks hooks;
  FakeEngine engine({.num_pages = 64, .page_tokens = 4, .chunk_tokens = 8, .hooks = &hooks}, one);
  Scheduler& scheduler = engine.scheduler();
  EXPECT_EQ(scheduler.num_prompt_rows(100), 0);
  ASSERT_TRUE(scheduler.add(numbered_input(1, 17, 1)));
  EXPECT_EQ(scheduler.num_prompt_rows(100), 17);
  EXPECT_EQ(scheduler.num_prompt_rows(10), 10);
  ASSERT_TRUE(engine.step());
  EXPECT_EQ(scheduler.num_prompt_rows(100), 9);
  while (engine.step()) {
  }
  RequestInput again = numbered_input(1, 17, 1);
  again.id = RequestId{2};
  ASSERT_TRUE(scheduler.add(std::move(again)));
  EXPECT_EQ(scheduler.num_prompt_rows(100), 1);
  hooks.not_ready.insert(RequestId{3});
  ASSERT_TRUE(scheduler.add(numbered_input(3, 20, 1)));
  EXPECT_EQ(scheduler.num_prompt_rows(100), 1);
  EXPECT_EQ(scheduler.stats().num_waiting_tokens, 37);
}

// The time that other ranks took tells nothing about this rank's steps.
TEST(SchedulerHooksTest, NothingIsLearntFromIdleSteps) {
  FakeSchedulerHooks hooks;
  FakeEngine engine({.num_pages = 64,
                     .page_tokens = 4,
                     .prefill_policy = PrefillPolicy::latency,
                     .itl_goal = std::chrono::milliseconds(9),
                     .hooks = &hooks},
                    one);
  ASSERT_TRUE(engine.scheduler().add(numbered_input(1, 8, 20)));
  while (engine.step()) {
  }
  const double error = engine.scheduler().stats().step_time_error;
  hooks.others_compute = true;
  engine.time_steps([](const Batch&) { return std::chrono::seconds(1); });
  for (int i = 0; i < 30; ++i) ASSERT_TRUE(engine.step());
  EXPECT_EQ(engine.scheduler().stats().step_time_error, error);
}

}  // namespace
}  // namespace hocket
