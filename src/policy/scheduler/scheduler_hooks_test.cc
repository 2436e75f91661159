// Tests the places of the questions in a step; tests/scenarios (held_*, skip_*, sync_*) test what
// follows from the answers.
#include "policy/scheduler/scheduler_hooks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "policy/scheduler/fake_engine.h"
#include "policy/scheduler/fake_scheduler_hooks.h"
#include "policy/scheduler/waiting_queue.h"

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
  bool may_join(const Request& head) override {
    lines.push_back(fmt::format("may_join {}", value(head.id)));
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
                                      "ready 1", "may_begin", "may_join 1",
                                      "agree 5 rows of mode " + mode(ForwardMode::extend),  //
                                      "ready 2", "may_begin", "may_join 2",
                                      "agree 7 rows of mode " + mode(ForwardMode::mixed),  //
                                      "agree 1 rows of mode " + mode(ForwardMode::decode)}));
  EXPECT_FALSE(diary.moved_before_agree) << "rows count as computed before all have agreed";
  EXPECT_EQ(engine.problem(), "");
}

// The head is chosen by look-ups in the prefix tree, so it is not chosen in vain.
TEST(SchedulerHooksTest, NoHeadIsAskedWhereNoneCouldBeAdmitted) {
  for (const bool by_place : {true, false}) {
    Diary diary;
    diary.lines = {"", ""};  // so that all are ready
    SchedulerOptions options{.num_pages = 64, .page_tokens = 4, .hooks = &diary};
    if (by_place)
      options.max_running_requests = 1;
    else
      options.prefill_max_requests = 1;
    FakeEngine engine(options, one);
    for (uint64_t id = 1; id <= 2; ++id)
      ASSERT_TRUE(engine.scheduler().add(numbered_input(id, 5, 3)));
    const auto num_asked = [&] {
      return std::ranges::count_if(
          diary.lines, [](const std::string& line) { return line.starts_with("may_join"); });
    };
    ASSERT_TRUE(engine.step());
    EXPECT_EQ(num_asked(), 1);
    EXPECT_EQ(engine.scheduler().stats().num_waiting, 1);
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(engine.step());
    EXPECT_EQ(engine.scheduler().stats().num_running, 0);
    EXPECT_EQ(num_asked(), 2);
    EXPECT_EQ(engine.problem(), "");
  }
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

TEST(SchedulerHooksTest, APassAsksOf128HeadsAtMost) {
  FakeSchedulerHooks hooks;
  FakeEngine engine({.num_pages = 1024, .page_tokens = 4, .hooks = &hooks}, one);
  for (uint64_t id = 1; id <= kMaxSkipped; ++id) {
    hooks.not_now.insert(RequestId{id});
    ASSERT_TRUE(engine.scheduler().add(numbered_input(id, 4, 1)));
  }
  ASSERT_TRUE(engine.scheduler().add(numbered_input(1000, 4, 1)));
  EXPECT_FALSE(engine.step());
  hooks.not_now.erase(RequestId{7});
  EXPECT_TRUE(engine.step());
  EXPECT_EQ(engine.scheduler().stats().num_waiting, kMaxSkipped - 1);
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
