#include "policy/simulation/virtual_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>

namespace hocket {
namespace {

// A machine on which a row takes 1 ms and nothing else takes time.
const StepModel kMillisecondARow = {.name = "test", .row_us = 1000, .turnaround_us = 0};

SchedulerOptions roomy() {
  SchedulerOptions o;
  o.num_pages = 4096;
  o.page_tokens = 16;
  o.chunk_tokens = 512;
  return o;
}

TraceRequest request(double due_ms, int input_len, int output_len, uint64_t id) {
  return {due_ms, {{id, input_len}}, input_len, output_len};
}

VirtualRun run(const Trace& trace, const SchedulerOptions& options) {
  auto result = run_in_virtual_time(trace, kMillisecondARow, options);
  EXPECT_TRUE(result) << describe(result.error());
  return result ? std::move(*result) : VirtualRun{};
}

TEST(VirtualRun, TimesFollowFromTheSteps) {
  Trace trace;
  trace.requests = {request(5, 10, 3, 1)};
  const VirtualRun result = run(trace, roomy());
  EXPECT_EQ(result.num_ok, 1);
  EXPECT_EQ(result.ttft_ms, std::vector<double>{10});
  EXPECT_EQ(result.itl_ms, (std::vector<double>{1, 1}));
  EXPECT_EQ(result.e2e_ms, std::vector<double>{12});
  EXPECT_DOUBLE_EQ(result.seconds, 0.012);
  EXPECT_EQ(result.output_tokens, 3);
  EXPECT_EQ(result.num_steps, 3u);
}

TEST(VirtualRun, ALateRequestWaitsForTheStepInFlight) {
  Trace trace;
  trace.requests = {request(0, 100, 1, 1), request(10, 20, 1, 2)};
  EXPECT_EQ(run(trace, roomy()).ttft_ms, (std::vector<double>{100, 90 + 20}));
}

TEST(VirtualRun, AClientSendsWhenItsAnswerIsThere) {
  Trace trace;
  trace.concurrency = 1;
  trace.since = Trace::Since::sent;
  trace.requests = {request(0, 10, 1, 1), request(0, 10, 1, 2), request(0, 10, 1, 3)};
  const VirtualRun result = run(trace, roomy());
  EXPECT_EQ(result.ttft_ms, (std::vector<double>{10, 10, 10}));
  EXPECT_DOUBLE_EQ(result.seconds, 0.030);
}

TEST(VirtualRun, SharedBlocksAreComputedOnce) {
  Trace trace;
  trace.requests = {{0, {{1, 64}, {2, 10}}, 74, 1}, {500, {{1, 64}, {3, 10}}, 74, 1}};
  const VirtualRun result = run(trace, roomy());
  EXPECT_EQ(result.cached_tokens, 64);
  EXPECT_EQ(result.ttft_ms, (std::vector<double>{74, 10}));
  EXPECT_NEAR(result.figures().cached_share, 64.0 / 148, 1e-9);
}

TEST(VirtualRun, WhatCanNeverFitIsRefused) {
  Trace trace;
  trace.requests = {request(0, 5000, 1, 1), request(0, 10, 2, 2)};
  SchedulerOptions options = roomy();
  options.num_pages = 100;
  const VirtualRun result = run(trace, options);
  EXPECT_EQ(result.num_refused, 1);
  EXPECT_EQ(result.num_ok, 1);
}

TEST(VirtualRun, AFullPoolRetractsAndEndsAll) {
  SchedulerOptions options = roomy();
  options.num_pages = 40;
  options.conservativeness = 0.05;
  const auto trace = make_trace(
      {.num_requests = 60, .request_rate = 0, .input_len = 60, .output_len = 200, .seed = 5});
  ASSERT_TRUE(trace);
  const VirtualRun result = run(*trace, options), again = run(*trace, options);
  EXPECT_EQ(result.num_ok, 60);
  EXPECT_GT(result.num_retractions, 0u);
  EXPECT_EQ(result.output_tokens,
            static_cast<int64_t>(result.ttft_ms.size() + result.itl_ms.size()));
  EXPECT_EQ(result.ttft_ms, again.ttft_ms);
  EXPECT_EQ(result.itl_ms, again.itl_ms);
}

// Twelve requests run for long, and beside them a long prompt comes every 400 ms.
Trace long_prompts_beside_running() {
  Trace trace;
  uint64_t id = 1;
  for (int i = 0; i < 12; ++i) trace.requests.push_back(request(i * 10, 64, 500, id++));
  for (int i = 1; i <= 20; ++i) trace.requests.push_back(request(i * 400, 3000 + i * 50, 40, id++));
  std::ranges::stable_sort(trace.requests, {}, &TraceRequest::due_ms);
  return trace;
}

struct Comparison {
  RunFigures prefill_first, mixed, latency;
};
Comparison compare(const StepModel& machine, int goal_ms) {
  const Trace trace = long_prompts_beside_running();
  const auto run_with = [&](PrefillPolicy policy) {
    SchedulerOptions options = roomy();
    options.prefill_policy = policy;
    options.itl_goal = std::chrono::milliseconds(goal_ms);
    const auto result = run_in_virtual_time(trace, machine, options);
    EXPECT_TRUE(result) << describe(result.error());
    if (!result) return RunFigures{};
    EXPECT_EQ(result->num_ok, 32);
    return result->figures();
  };
  return {run_with(PrefillPolicy::prefill_first), run_with(PrefillPolicy::mixed),
          run_with(PrefillPolicy::latency)};
}

TEST(VirtualRun, TheLatencyPolicyKeepsItsGoalAndTheThroughput) {
  const StepModel machine = {
      .name = "test", .fixed_us = 1500, .row_us = 100, .output_us = 50, .key_us = 0.01};
  for (const int goal_ms : {15, 25, 40}) {
    const Comparison c = compare(machine, goal_ms);
    EXPECT_LE(c.latency.itl_p99_ms, 1.2 * goal_ms) << goal_ms;
    EXPECT_GT(c.latency.itl_p99_ms, 0.7 * goal_ms) << goal_ms;  // and makes use of it
    EXPECT_GT(c.prefill_first.itl_p99_ms, 2 * goal_ms);
    EXPECT_GT(c.mixed.itl_p99_ms, goal_ms);
    EXPECT_NEAR(c.latency.output_tokens_per_s / c.prefill_first.output_tokens_per_s, 1, 0.15);
    EXPECT_NEAR(c.latency.output_tokens_per_s / c.mixed.output_tokens_per_s, 1, 0.15);
  }
}

VirtualRun run_on(const VirtualHosts& hosts, const Trace& trace, const SchedulerOptions& options) {
  auto result = run_in_virtual_time(trace, kMillisecondARow, options, hosts);
  EXPECT_TRUE(result) << describe(result.error());
  return result ? std::move(*result) : VirtualRun{};
}

TEST(VirtualRun, HostsTakeRequestsInTurn) {
  Trace trace;
  trace.requests = {request(0, 100, 2, 1), request(0, 100, 2, 2), request(10, 100, 2, 3)};
  const VirtualRun result = run_on({.num_others = 2}, trace, roomy());
  EXPECT_EQ(result.num_ok, 3);
  EXPECT_EQ(result.ttft_ms, (std::vector<double>{100, 100, 90 + 100}));
}

// 96 of the 100 rows travel in whole pages; the others are computed where the answer is, as is
// every token.
TEST(VirtualRun, PagesTravelToTheHostThatAnswers) {
  Trace trace;
  trace.requests = {request(0, 100, 3, 1)};
  const VirtualHosts hosts{
      .num_prefill = 1, .num_others = 1, .link_bytes_per_s = 1000, .kv_bytes_per_token = 0.5};
  const VirtualRun result = run_on(hosts, trace, roomy());
  EXPECT_EQ(result.num_ok, 1);
  EXPECT_EQ(result.ttft_ms, std::vector<double>{100 + 50 + 4});
  EXPECT_EQ(result.itl_ms, (std::vector<double>{1, 1}));
  EXPECT_EQ(result.output_tokens, 3);
  EXPECT_EQ(result.num_steps, 4u);
}

// The second prompt continues behind the first on both hosts: only its own rows travel.
TEST(VirtualRun, PagesThatAreThereDoNotTravel) {
  Trace trace;
  trace.requests = {{0, {{1, 64}}, 64, 1}, {500, {{1, 64}, {2, 16}}, 80, 1}};
  const VirtualHosts hosts{
      .num_prefill = 1, .num_others = 1, .link_bytes_per_s = 1000, .kv_bytes_per_token = 1};
  const VirtualRun result = run_on(hosts, trace, roomy());
  EXPECT_EQ(result.ttft_ms, (std::vector<double>{64 + 64 + 1, 16 + 16 + 1}));
}

// No step of the hosts that answer has the rows of a long prompt.
TEST(VirtualRun, AnswersNeverWaitForPromptsOfOtherHosts) {
  const Trace trace = long_prompts_beside_running();
  SchedulerOptions options = roomy();
  options.prefill_policy = PrefillPolicy::mixed;
  const VirtualRun mixed = run_on({.num_others = 2}, trace, options);
  const VirtualRun apart = run_on({.num_prefill = 1, .num_others = 1}, trace, options);
  EXPECT_EQ(mixed.num_ok, 32);
  EXPECT_EQ(apart.num_ok, 32);
  EXPECT_LT(apart.figures().itl_p99_ms, mixed.figures().itl_p99_ms / 4);
  EXPECT_EQ(apart.ttft_ms, run_on({.num_prefill = 1, .num_others = 1}, trace, options).ttft_ms);
}

// The pool of the host that answers holds two prompts: the others wait until one has ended.
TEST(VirtualRun, PromptsWaitForRoomWhereTheyAreAnswered) {
  Trace trace;
  for (uint64_t i = 1; i <= 20; ++i) trace.requests.push_back(request(0, 160, 40, i));
  SchedulerOptions options = roomy();
  options.num_pages = 26;
  const VirtualRun result = run_on({.num_prefill = 1, .num_others = 1}, trace, options);
  EXPECT_EQ(result.num_ok, 20);
  EXPECT_EQ(result.output_tokens, 20 * 40);
}

// With experts, a step's time is not a sum over its rows; the goal must be kept all the same.
TEST(VirtualRun, TheLatencyPolicyKeepsItsGoalOnAMixtureOfExperts) {
  StepModel machine = shipped_step_model();
  machine.row_us /= 10;
  const Comparison c = compare(machine, 60);
  EXPECT_LE(c.latency.itl_p99_ms, 1.2 * 60);
  EXPECT_GT(c.latency.itl_p99_ms, 0.7 * 60);
  EXPECT_GT(c.mixed.itl_p99_ms, 10 * 60);
  EXPECT_NEAR(c.latency.output_tokens_per_s / c.prefill_first.output_tokens_per_s, 1, 0.15);
}

}  // namespace
}  // namespace hocket
