#include "policy/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/count_allocations_testing.h"
#include "base/log.h"
#include "policy/scheduler/fake_engine_testing.h"
#include "policy/scheduler/fake_scheduler_hooks_testing.h"
#include "policy/scheduler/waiting_queue.h"

namespace hocket {
namespace {

class DecodeStepTest : public ::testing::TestWithParam<PrefillPolicy> {};
INSTANTIATE_TEST_SUITE_P(EveryPrefillPolicy, DecodeStepTest,
                         ::testing::Values(PrefillPolicy::prefill_first, PrefillPolicy::mixed,
                                           PrefillPolicy::latency));

TEST_P(DecodeStepTest, AllocatesNothing) {
  // There are few pages, so that steps also take pages and evict from the tree to get them.
  Scheduler scheduler({.num_pages = 56,
                       .page_tokens = 4,
                       .max_running_requests = 8,
                       .prefill_policy = GetParam(),
                       .itl_goal = std::chrono::milliseconds(2)});
  std::vector<SampledToken> sampled;
  auto step = [&] {
    const Batch& batch = scheduler.schedule({});
    for (const Slice& slice : batch.slices)
      if (slice.is_sampled) sampled.push_back({TokenId{7}, false});
    const ForwardMode mode = batch.mode;
    scheduler.note_duration(batch, std::chrono::milliseconds(1));
    scheduler.commit(batch, sampled, {});
    sampled.clear();
    return mode;
  };
  sampled.reserve(16);
  for (uint64_t id = 10; id < 19; ++id) ASSERT_TRUE(scheduler.add(numbered_input(id, 24, 1)));
  while (!scheduler.idle()) step();
  ASSERT_GT(scheduler.stats().num_cached_pages, 50);
  const uint64_t evicted_before = scheduler.stats().num_evicted_pages_total;
  for (uint64_t id = 1; id < 5; ++id) ASSERT_TRUE(scheduler.add(numbered_input(id, 7, 29)));
  while (step() != ForwardMode::decode) {
  }
  ASSERT_EQ(scheduler.stats().num_running, 4);

  const int64_t before = num_allocations;
  for (int i = 0; i < 26; ++i) step();
  EXPECT_EQ(num_allocations - before, 0);
  EXPECT_EQ(scheduler.stats().num_running, 4);
  EXPECT_GT(scheduler.stats().num_evicted_pages_total, evicted_before + 10);
}

// Lets each allocation of add() fail once: with room in the queue, with a full queue, and when the
// request is held.
TEST(SchedulerTest, ARequestForWhichThereIsNoMemoryIsRefusedAndChangesNothing) {
  log::set_level(log::Level::error);
  for (const auto policy : {SchedulePolicy::fcfs, SchedulePolicy::lof, SchedulePolicy::fair,
                            SchedulePolicy::routing_key}) {
    FakeSchedulerHooks hooks;
    Scheduler scheduler({.num_pages = 64,
                         .page_tokens = 4,
                         .max_running_requests = 2,
                         .max_queued_requests = 2,
                         .policy = policy,
                         .priorities = {.enabled = true},
                         .hooks = &hooks});
    const auto add = [&](uint64_t id, int priority) {
      int num_refused = 0;
      for (bool refused = true; refused;) {
        RequestInput input = numbered_input(id, 7, 3);
        input.priority = priority;
        input.client = input.routing_key = id;
        const SchedulerStats before = scheduler.stats();
        failing_allocation = num_refused + 1;
        const Result<void> added = scheduler.add(std::move(input));
        refused = std::exchange(failing_allocation, 0) == 0;
        ASSERT_EQ(added.has_value(), !refused);
        if (!refused) break;
        EXPECT_EQ(added.error().code, ErrorCode::out_of_memory);
        const SchedulerStats after = scheduler.stats();
        EXPECT_EQ(after.num_waiting, before.num_waiting);
        EXPECT_EQ(after.num_held, before.num_held);
        EXPECT_EQ(after.num_waiting_tokens, before.num_waiting_tokens);
        EXPECT_EQ(after.num_displaced_total, before.num_displaced_total);
        EXPECT_EQ(scheduler.has_finished(), before.num_displaced_total > 0);
        ++num_refused;
      }
      EXPECT_GT(num_refused, 0);
    };
    add(1, 1);
    hooks.not_ready.insert(RequestId{2});
    add(2, 1);
    add(3, 2);  // the first request gives way
    EXPECT_EQ(scheduler.stats().num_displaced_total, 1u);
    hooks.not_ready.clear();
    std::vector<SampledToken> sampled;
    while (!scheduler.idle()) {
      const Batch& batch = scheduler.schedule({});
      sampled.clear();
      for (const Slice& slice : batch.slices)
        if (slice.is_sampled) sampled.push_back({TokenId{7}, false});
      scheduler.commit(batch, sampled, {});
    }
    scheduler.check_integrity();
    EXPECT_EQ(scheduler.take_finished().size(), 3u);
  }
  log::set_level(log::Level::info);
}

TEST(SchedulerTest, WithoutMemoryForItsTokensARequestEndsAndTheOthersRun) {
  FakeEngine engine({.num_pages = 1024, .page_tokens = 4},
                    [](const Request&, auto) { return SampledToken{TokenId{1}, false}; });
  engine.step();
  ASSERT_TRUE(engine.scheduler().add(numbered_input(1, 8, 4000)));
  ASSERT_TRUE(engine.scheduler().add(numbered_input(2, 8, 3)));
  max_allocated_bytes = 12000;
  engine.step();
  max_allocated_bytes = SIZE_MAX;
  EXPECT_EQ(engine.scheduler().stats().num_running, 1);
  while (engine.step()) {
  }
  const auto finished = engine.scheduler().take_finished();
  ASSERT_EQ(finished.size(), 2u);
  for (const auto& request : finished) {
    const bool large = request->id == RequestId{1};
    EXPECT_EQ(request->finish, large ? FinishReason::error : FinishReason::length);
    EXPECT_EQ(request->error.code == ErrorCode::out_of_memory, large);
  }
}

TEST(SchedulerTest, AGlanceShowsWhereRequestsAre) {
  FakeSchedulerHooks hooks;
  Scheduler scheduler({.num_pages = 64,
                       .page_tokens = 4,
                       .max_running_requests = 3,
                       .chunk_tokens = 8,
                       .max_prefill_tokens = 8,
                       .hooks = &hooks});
  hooks.not_ready.insert(RequestId{5});
  for (uint64_t id = 1; id <= 5; ++id)
    ASSERT_TRUE(scheduler.add(numbered_input(id, id == 2 ? 20 : 4, 9)));
  const auto look = [&](size_t most) {
    std::vector<RequestSnapshot> rows(most);
    rows.resize(scheduler.snapshot(rows));
    return rows;
  };
  ASSERT_EQ(look(8).size(), 5u);
  for (const RequestSnapshot& row : look(8))
    EXPECT_EQ(row.where, row.id == RequestId{5} ? RequestSnapshot::Where::held
                                                : RequestSnapshot::Where::waiting);
  const Batch& batch = scheduler.schedule({});
  std::vector<SampledToken> sampled;
  for (const Slice& slice : batch.slices)
    if (slice.is_sampled) sampled.push_back({TokenId{7}, false});
  scheduler.commit(batch, sampled, {});
  const auto rows = look(8);
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0].id, RequestId{1});
  EXPECT_EQ(rows[0].where, RequestSnapshot::Where::running);
  EXPECT_EQ(rows[0].generated_tokens, 1);
  EXPECT_EQ(rows[0].computed_tokens, 4);
  EXPECT_EQ(rows[1].id, RequestId{2});
  EXPECT_EQ(rows[1].where, RequestSnapshot::Where::prefilling);
  EXPECT_EQ(rows[1].computed_tokens, 4);
  EXPECT_EQ(rows[4].where, RequestSnapshot::Where::held);
  EXPECT_EQ(look(2).size(), 2u);
}

TEST(SchedulerTest, ADecodeStepBesideHeldAndWaitingOnesAllocatesNothing) {
  FakeSchedulerHooks hooks;
  Scheduler scheduler(
      {.num_pages = 64, .page_tokens = 4, .max_running_requests = 2, .hooks = &hooks});
  std::vector<SampledToken> sampled;
  const auto step = [&] {
    const Batch& batch = scheduler.schedule({});
    sampled.assign(batch.slices.size(), {TokenId{7}, false});
    const ForwardMode mode = batch.mode;
    scheduler.commit(batch, sampled, {});
    return mode;
  };
  for (uint64_t id = 1; id <= 6; ++id) {
    if (id > 4) hooks.not_ready.insert(RequestId{id});
    ASSERT_TRUE(scheduler.add(numbered_input(id, 7, 29)));
  }
  while (step() != ForwardMode::decode) {
  }
  const int64_t before = num_allocations;
  for (int i = 0; i < 20; ++i) ASSERT_EQ(step(), ForwardMode::decode);
  EXPECT_EQ(num_allocations - before, 0);
  EXPECT_EQ(scheduler.stats().num_held, 2);
  EXPECT_EQ(scheduler.stats().num_waiting, 2);
}

TEST(SchedulerTest, RememberedTimesFollowTheStages) {
  FakeEngine engine({.num_pages = 16, .page_tokens = 4, .chunk_tokens = 4},
                    [](const Request&, auto) { return SampledToken{TokenId{1}, false}; });
  engine.step();
  ASSERT_TRUE(engine.scheduler().add(numbered_input(1, 8, 2)));
  while (engine.step()) {
  }
  const auto finished = engine.scheduler().take_finished();
  ASSERT_EQ(finished.size(), 1u);
  const RequestTimes& times = finished[0]->times;
  EXPECT_EQ(to_ms(times.first_scheduled.time_since_epoch()), 1);
  EXPECT_EQ(to_ms(times.prefill_done.time_since_epoch()), 3);
  EXPECT_EQ(to_ms(times.finished.time_since_epoch()), 4);
  EXPECT_FALSE(engine.scheduler().has_finished());
}

TEST(SchedulerTest, AnAbortForAStopStringRemembersThePages) {
  FakeEngine engine({.num_pages = 16, .page_tokens = 4},
                    [](const Request&, auto) { return SampledToken{TokenId{1}, false}; });
  ASSERT_TRUE(engine.scheduler().add(numbered_input(1, 6, 9)));
  for (int i = 0; i < 4; ++i) engine.step();  // 9 tokens are computed
  EXPECT_EQ(engine.scheduler().stats().num_cached_pages, 1);
  EXPECT_TRUE(engine.scheduler().abort(RequestId{1}, FinishReason::stop, {}));
  EXPECT_EQ(engine.scheduler().stats().num_cached_pages, 2);
  EXPECT_FALSE(engine.scheduler().abort(RequestId{1}, FinishReason::stop, {}));
  EXPECT_FALSE(engine.scheduler().abort(RequestId{99}, FinishReason::stop, {}));
  EXPECT_EQ(engine.problem(), "");
}

// A request that continues an answer finds the answer's pages too, but only its prompt counts.
TEST(SchedulerTest, CachedTokensAreTokensOfThePrompt) {
  FakeEngine engine({.num_pages = 32, .page_tokens = 4},
                    [](const Request&, auto) { return SampledToken{TokenId{1}, false}; });
  Scheduler& scheduler = engine.scheduler();
  ASSERT_TRUE(scheduler.add(numbered_input(1, 6, 20)));
  while (engine.step()) {
  }
  RequestInput again = numbered_input(1, 6, 20);
  again.answer.assign(14, TokenId{1});
  ASSERT_TRUE(scheduler.add(std::move(again)));
  while (engine.step()) {
  }
  const auto finished = scheduler.take_finished();
  ASSERT_EQ(finished.size(), 2u);
  EXPECT_EQ(finished[1]->cached_len, 6);
  EXPECT_EQ(finished[1]->recomputed_len, 0);
  EXPECT_EQ(finished[1]->generated(), 20);
  const SchedulerStats stats = scheduler.stats();
  EXPECT_EQ(stats.prompt_tokens_total, 12u);
  EXPECT_EQ(stats.cached_tokens_total, 6u);
  EXPECT_EQ(engine.problem(), "");
}

// add() would refuse so big a request, so the test makes it bigger later.
TEST(SchedulerTest, TheLastRequestThatOutgrowsThePoolEndsWithAnError) {
  log::set_level(log::Level::error);
  FakeEngine engine({.num_pages = 8, .page_tokens = 4, .conservativeness = 0.01},
                    [](const Request&, auto) { return SampledToken{TokenId{1}, false}; });
  ASSERT_TRUE(engine.scheduler().add(numbered_input(1, 8, 9)));
  ASSERT_TRUE(engine.scheduler().add(numbered_input(2, 8, 9)));
  engine.step([](const Batch& batch) { batch.slices[0].request->sampling.max_new_tokens = 90; });
  while (!engine.scheduler().has_finished()) engine.step();
  auto finished = engine.scheduler().take_finished();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0]->finish, FinishReason::error);
  EXPECT_EQ(finished[0]->error.code, ErrorCode::out_of_memory);
  EXPECT_EQ(finished[0]->tokens.size(), 33u);
  while (engine.step()) {
  }
  finished = engine.scheduler().take_finished();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0]->finish, FinishReason::length);
  EXPECT_EQ(finished[0]->generated(), 9);
  EXPECT_EQ(engine.problem(), "");
}

// The test prints the times; its bounds only catch growth beyond linear.
TEST(SchedulerSpeedTest, ADecodeStep) {
  for (const int num_running : {64, 256, 1024}) {
    Scheduler scheduler({.num_pages = 1 << 16,
                         .page_tokens = 16,
                         .max_running_requests = num_running,
                         .max_queued_requests = 20000,
                         .conservativeness = 0});
    for (int id = 1; id <= num_running; ++id)
      ASSERT_TRUE(scheduler.add(numbered_input(static_cast<uint64_t>(id), 100, 500)));
    std::vector<SampledToken> sampled(static_cast<size_t>(num_running), {TokenId{5}, false});
    auto step = [&] {
      const Batch& batch = scheduler.schedule({});
      const auto count = std::ranges::count_if(batch.slices, &Slice::is_sampled);
      const bool decodes = batch.mode == ForwardMode::decode;
      scheduler.commit(batch, std::span(sampled).first(static_cast<size_t>(count)), {});
      return decodes;
    };
    while (!step()) {
    }
    ASSERT_EQ(scheduler.stats().num_running, num_running);
    for (int id = 0; id < 10000; ++id)
      ASSERT_TRUE(scheduler.add(numbered_input(static_cast<uint64_t>(5000 + id), 100, 500)));
    std::vector<double> us(200);
    for (double& one : us) {
      const auto start = std::chrono::steady_clock::now();
      step();
      one = to_us(std::chrono::steady_clock::now() - start);
    }
    std::sort(us.begin(), us.end());
    std::printf("decode step, %d running, 10000 waiting: median %.1f us, p99 %.1f us\n",
                num_running, us[100], us[198]);
    EXPECT_LT(us[100], 5.0 * num_running);
  }
}

// Whatever the policy, a pass that admits one of very many requests looks at few of them.
TEST(SchedulerSpeedTest, APrefillPassWithTenThousandWaiting) {
  log::set_level(log::Level::error);
  for (const std::string_view name : schedule_policy_names()) {
    Scheduler scheduler({.num_pages = 1 << 16,
                         .page_tokens = 16,
                         .max_running_requests = 1,
                         .max_queued_requests = 20000,
                         .policy = *parse_schedule_policy(name)});
    for (int id = 1; id <= 10000; ++id) {
      RequestInput made = numbered_input(static_cast<uint64_t>(id), 200, 1);
      made.client = static_cast<uint64_t>(id % 100);
      ASSERT_TRUE(scheduler.add(std::move(made)));
    }
    std::vector<double> us(101);
    const SampledToken token{TokenId{5}, false};
    for (double& one : us) {
      const auto start = std::chrono::steady_clock::now();
      const Batch& batch = scheduler.schedule({});
      one = to_us(std::chrono::steady_clock::now() - start);
      ASSERT_EQ(batch.slices.size(), 1u);
      scheduler.commit(batch, {&token, 1}, {});
    }
    std::sort(us.begin(), us.end());
    std::printf("prefill pass, 10000 waiting, %s: median %.1f us, p99 %.1f us\n",
                std::string(name).c_str(), us[50], us[99]);
    EXPECT_LT(us[50], 3000);
  }
}

TEST(SchedulerTest, RefusalsSayTheNumbersAndAFix) {
  Scheduler scheduler({.num_pages = 4, .page_tokens = 4});
  const auto refused = scheduler.add(numbered_input(1, 10, 50));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::request_too_big);
  EXPECT_EQ(refused.error().fix, "max_tokens of at most 7");
  EXPECT_EQ(refused.error().param, "max_tokens");
  EXPECT_TRUE(scheduler.add(numbered_input(1, 10, 7)));
}

// A short prompt passes a long one: the long one is then in chunks, or ends its prompt behind the
// short one in the same pass.
TEST(SchedulerTest, UndoneRequestsWaitInTheOrderOfTheirAdmission) {
  for (const int long_prompt : {40, 12}) {
    Scheduler scheduler({.num_pages = 32,
                         .page_tokens = 4,
                         .chunk_tokens = 16,
                         .max_prefill_tokens = 16,
                         .max_chunked_requests = 2});
    ASSERT_TRUE(scheduler.add(numbered_input(1, long_prompt, 4)));
    ASSERT_TRUE(scheduler.add(numbered_input(2, 4, 4)));
    ASSERT_EQ(scheduler.schedule({}).slices.size(), 2u);
    std::vector<RequestSnapshot> rows(2);
    ASSERT_EQ(scheduler.snapshot(rows), 2u);
    EXPECT_EQ(rows[0].id, RequestId{2}) << "it ends its prompt first";
    EXPECT_EQ(scheduler.undo_steps({}, {}), 2);
    ASSERT_EQ(scheduler.snapshot(rows), 2u);
    EXPECT_EQ(rows[0].id, RequestId{1}) << "prompt of " << long_prompt;
    EXPECT_EQ(rows[1].id, RequestId{2}) << "prompt of " << long_prompt;
  }
}

TEST(WaitingQueueWithoutMemory, AHeadThatCannotBeHeldStaysInLine) {
  WaitingQueue queue({.max_requests = 4096});
  for (uint64_t id = 1; id <= 200; ++id) {
    auto request = std::make_unique<Request>();
    request->id = RequestId{id};
    queue.push(std::move(request), {}, 0);
  }
  max_allocated_bytes = 0;
  EXPECT_THROW(while (queue.num_held() < 200) queue.hold_head(), std::bad_alloc);
  max_allocated_bytes = SIZE_MAX;
  EXPECT_EQ(queue.size() + queue.num_held(), 200);
  EXPECT_TRUE(std::ranges::all_of(queue.held(), [](const auto& one) { return one != nullptr; }));
}

TEST(SchedulerDeathTest, SettingsThatCouldStarveStop) {
  EXPECT_DEATH(Scheduler({.num_pages = 4, .page_tokens = 32, .chunk_tokens = 16}), "CHECK failed");
  EXPECT_DEATH(
      Scheduler({.num_pages = 4, .page_tokens = 4, .chunk_tokens = 64, .max_prefill_tokens = 32}),
      "must be at least 64");
}

}  // namespace
}  // namespace hocket
