#include "policy/simulation/trace.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <optional>
#include <sstream>

namespace hocket {
namespace {

Trace read(const std::string& text) {
  std::istringstream lines(text);
  auto trace = read_trace(lines, "test");
  EXPECT_TRUE(trace) << describe(trace.error());
  return trace ? *trace : Trace{};
}
std::string fault(const std::string& text) {
  std::istringstream lines(text);
  const auto trace = read_trace(lines, "test");
  return trace ? "" : trace.error().message;
}

int shared_len(const TraceRequest& a, const TraceRequest& b) {
  const auto one = prompt_of(a), two = prompt_of(b);
  int len = 0;
  while (len < static_cast<int>(std::min(one.size(), two.size())) && one[len] == two[len]) ++len;
  return len;
}

TEST(Trace, ReadsMooncakeLinesInTheOrderOfTime) {
  const Trace trace = read(
      "{\"timestamp\": 30, \"input_length\": 1000, \"output_length\": 5, \"hash_ids\": [7, 9]}\n"
      "\n"
      "{\"timestamp\": 10, \"input_length\": 1300, \"output_length\": 2, \"hash_ids\": [7, 8, "
      "3]}\n");
  ASSERT_EQ(trace.requests.size(), 2u);
  EXPECT_EQ(trace.requests[0].due_ms, 10);
  EXPECT_EQ(trace.requests[0].input_len, 1300);
  EXPECT_EQ(trace.requests[0].output_len, 2);
  EXPECT_EQ(trace.concurrency, 0);
  // The last block holds the rest of the prompt.
  EXPECT_EQ(trace.requests[0].blocks.back().len, 1300 - 2 * 512);
  EXPECT_EQ(prompt_of(trace.requests[0]).size(), 1300u);
  EXPECT_EQ(shared_len(trace.requests[0], trace.requests[1]), 512);
}

TEST(Trace, TokensWithoutAnIdAreNobodyElses) {
  const Trace trace = read(
      "{\"timestamp\": 0, \"input_length\": 100, \"output_length\": 5}\n"
      "{\"timestamp\": 0, \"input_length\": 100, \"output_length\": 5}\n");
  EXPECT_EQ(prompt_of(trace.requests[0]).size(), 100u);
  EXPECT_EQ(shared_len(trace.requests[0], trace.requests[1]), 0);
}

TEST(Trace, ReadsItsOwnLog) {
  const Trace trace = read(
      "{\"hocket_log\": 1, \"max_concurrency\": 4, \"request_rate\": 2.5, \"scheduler\": "
      "{\"num_pages\": 99, \"page_size\": 16, \"max_running_requests\": 8, "
      "\"max_queued_requests\": 7, \"chunked_prefill_size\": 64, \"max_prefill_tokens\": 128, "
      "\"enable_mixed_chunk\": true, \"schedule_conservativeness\": 0.5, "
      "\"disable_radix_cache\": true, \"schedule_policy\": \"lpm\"}, "
      "\"measured\": {\"seconds\": 3, \"ttft_p50_ms\": 1.5}}\n"
      "{\"timestamp\": 1.5, \"input_length\": 30, \"output_length\": 5, \"hash_ids\": [0, 4], "
      "\"hash_lengths\": [20, 10]}\n"
      "{\"timestamp\": 2, \"input_length\": 33, \"output_length\": 5, \"hash_ids\": [0, 5], "
      "\"hash_lengths\": [20, 13]}\n");
  EXPECT_EQ(trace.concurrency, 4);
  EXPECT_EQ(trace.since, Trace::Since::due);
  ASSERT_TRUE(trace.scheduler);
  EXPECT_EQ(trace.scheduler->num_pages, 99);
  EXPECT_EQ(trace.scheduler->chunk_tokens, 64);
  EXPECT_EQ(trace.scheduler->prefill_policy, PrefillPolicy::mixed);
  EXPECT_FALSE(trace.scheduler->prefix_cache);
  EXPECT_EQ(trace.policy_name, "lpm");
  ASSERT_TRUE(trace.measured);
  EXPECT_EQ(trace.measured->ttft_p50_ms, 1.5);
  EXPECT_EQ(shared_len(trace.requests[0], trace.requests[1]), 20);
}

// Reads a head with one setting that older logs lack; nullopt if the head is refused.
std::optional<SchedulerOptions> with_setting(const std::string& setting) {
  std::istringstream lines(
      "{\"hocket_log\": 1, \"scheduler\": {\"num_pages\": 99, \"page_size\": 16, "
      "\"max_running_requests\": 8, \"max_queued_requests\": 7, \"chunked_prefill_size\": 64, "
      "\"max_prefill_tokens\": 128, \"schedule_conservativeness\": 0.5, "
      "\"disable_radix_cache\": true, \"schedule_policy\": \"lpm\"" +
      setting + "}}\n{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 5}\n");
  const auto trace = read_trace(lines, "test");
  return trace ? trace->scheduler : std::nullopt;
}

TEST(Trace, ReadsEverySettingOfTheScheduler) {
  const auto old = with_setting("");
  ASSERT_TRUE(old);
  EXPECT_EQ(old->prefill_policy, PrefillPolicy::prefill_first);
  EXPECT_EQ(old->max_overtaken, SchedulerOptions().max_overtaken);
  EXPECT_FALSE(old->priorities.enabled);
  EXPECT_TRUE(old->priorities.preempt);
  const auto all = with_setting(
      ", \"enable_mixed_chunk\": false, \"prefill_policy\": \"latency\", \"itl_slo_ms\": 12.5, "
      "\"max_chunked_requests\": 3, \"max_queued_tokens\": 5000, \"prefill_max_requests\": 4, "
      "\"max_overtaken\": 17, \"waiting_timeout\": 1.5, \"running_timeout\": 2.5, "
      "\"in_batch_prefix_check\": -1, \"in_batch_prefix_common\": 9, "
      "\"enable_priority_scheduling\": true, \"schedule_low_priority_values_first\": true, "
      "\"disable_priority_preemption\": true, \"priority_scheduling_preemption_threshold\": 6, "
      "\"radix_eviction_policy\": \"lfu\", \"schedule_seed\": 77");
  ASSERT_TRUE(all);
  EXPECT_EQ(all->prefill_policy, PrefillPolicy::latency);
  EXPECT_EQ(all->itl_goal, std::chrono::microseconds(12500));
  EXPECT_EQ(all->max_chunked_requests, 3);
  EXPECT_EQ(all->max_queued_tokens, 5000);
  EXPECT_EQ(all->prefill_max_requests, 4);
  EXPECT_EQ(all->max_overtaken, 17);
  EXPECT_EQ(all->waiting_timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(all->running_timeout, std::chrono::milliseconds(2500));
  EXPECT_EQ(all->in_batch.max_cached, -1);
  EXPECT_EQ(all->in_batch.min_common, 9);
  EXPECT_TRUE(all->priorities.enabled);
  EXPECT_TRUE(all->priorities.low_values_first);
  EXPECT_FALSE(all->priorities.preempt);
  EXPECT_EQ(all->priorities.preemption_threshold, 6);
  EXPECT_EQ(all->eviction, EvictionPolicy::lfu);
  EXPECT_EQ(all->seed, 77u);
}

TEST(Trace, RefusesASchedulerThatCannotRun) {
  EXPECT_FALSE(with_setting(", \"prefill_policy\": \"soon\""));
  EXPECT_FALSE(with_setting(", \"prefill_policy\": \"latency\""));  // there is no goal
  EXPECT_FALSE(with_setting(", \"max_chunked_requests\": 0"));
  EXPECT_FALSE(with_setting(", \"max_overtaken\": \"many\""));
}

TEST(Trace, SaysWhichLineIsWrong) {
  EXPECT_EQ(fault(""), "the trace test has no requests");
  EXPECT_NE(fault("{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\nnonsense")
                .find("line 2 of test"),
            std::string::npos);
  EXPECT_NE(fault("{\"timestamp\": 0, \"input_length\": 0, \"output_length\": 1}")
                .find("input_length and output_length are 1 to"),
            std::string::npos);
  EXPECT_NE(
      fault("{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [1], "
            "\"hash_lengths\": [10]}")
          .find("do not add up"),
      std::string::npos);
}

// The two texts of this dump were asked for 1 s and 2 s after its beginning and took 500 ms each.
TEST(Trace, OfADumpWhatWasMeasuredIsPutTogetherOfItsLines) {
  std::istringstream lines(
      R"({"hocket_log":1,"hocket_dump":1}
{"timestamp":2000,"input_length":30,"output_length":5,"ttft_ms":300,"e2e_ms":500,)"
      R"("cached_tokens":30,"body":{"x":[1]}}
{"timestamp":1000,"input_length":10,"output_length":3,"ttft_ms":100,"e2e_ms":500,"cached_tokens":0}
)");
  const auto trace = read_trace(lines, "test");
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_TRUE(trace->measured);
  EXPECT_EQ(trace->requests.front().due_ms, 1000);
  EXPECT_EQ(trace->concurrency, 0);
  EXPECT_DOUBLE_EQ(trace->measured->seconds, 1.5);
  EXPECT_DOUBLE_EQ(trace->measured->ttft_p50_ms, 200);
  EXPECT_DOUBLE_EQ(trace->measured->e2e_p50_ms, 500);
  EXPECT_DOUBLE_EQ(trace->measured->cached_share, 0.75);
  EXPECT_DOUBLE_EQ(trace->measured->output_tokens_per_s, 8 / 1.5);
  EXPECT_DOUBLE_EQ(trace->measured->itl_p50_ms, 50);  // gaps: 200, 200; 50, 50, 50, 50
}

TEST(Trace, OfADumpNoMoreIsCachedThanAsked) {
  const Trace trace = read(
      R"({"hocket_log":1,"hocket_dump":1}
{"timestamp":0,"input_length":30,"output_length":5,"ttft_ms":1,"e2e_ms":2,"cached_tokens":1e300}
{"timestamp":0,"input_length":10,"output_length":5,"ttft_ms":1,"e2e_ms":2,"cached_tokens":-1e300}
)");
  ASSERT_TRUE(trace.measured);
  EXPECT_EQ(trace.measured->cached_share, 0.75);
}

TEST(Trace, SyntheticTrafficFollowsFromItsSeed) {
  const SyntheticTraffic traffic{.num_requests = 2000,
                                 .request_rate = 50,
                                 .input_len = 100,
                                 .output_len = 20,
                                 .shared_prefix_len = 40,
                                 .seed = 3};
  const auto trace = make_trace(traffic), again = make_trace(traffic);
  ASSERT_TRUE(trace && again);
  EXPECT_EQ(trace->requests[1999].due_ms, again->requests[1999].due_ms);
  EXPECT_NEAR(trace->requests[1999].due_ms, 2000 / 50.0 * 1e3, 4e3);
  for (const TraceRequest& r : trace->requests) {
    ASSERT_GE(r.input_len, 40 + 50);
    ASSERT_LE(r.input_len, 40 + 100);
    ASSERT_GE(r.output_len, 10);
    ASSERT_LE(r.output_len, 20);
  }
  EXPECT_EQ(shared_len(trace->requests[0], trace->requests[1]), 40);
  EXPECT_FALSE(make_trace({.num_requests = 0}));
}

TEST(Trace, SyntheticTrafficHasBounds) {
  constexpr int kMax = std::numeric_limits<int>::max();
  EXPECT_FALSE(make_trace({.num_requests = 2, .input_len = kMax}));
  EXPECT_FALSE(make_trace({.num_requests = 2, .output_len = kMax}));
  EXPECT_FALSE(make_trace({.num_requests = 2, .shared_prefix_len = kMax}));
  EXPECT_FALSE(make_trace({.num_requests = 2, .request_rate = 1e-300}));
  EXPECT_EQ(make_trace({.num_requests = 2, .input_len = 0}).error().message,
            "--input-len is 0, must be between 1 and 16777216");
}

TEST(Trace, ANumberThatItsFieldDoesNotHoldIsRefusedByName) {
  const char* const lines[][2] = {
      {R"({"timestamp": 0, "input_length": 4294967297, "output_length": 1})", "input_length is 42"},
      {R"({"timestamp": 0, "input_length": 1.5, "output_length": 1})", "input_length is 1.5"},
      {R"({"timestamp": 0, "input_length": 1, "output_length": 1e300})", "output_length is 1e+300"},
      {R"({"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [-1]})",
       "hash_ids is -1"},
      {R"({"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1],
           "hash_lengths": [4294967305]})",
       "hash_lengths is 4294967305"},
      {R"({"hocket_log": 1, "max_concurrency": 4294967297})", "max_concurrency is 4294967297"}};
  for (const auto& [line, words] : lines) {
    std::string one = line;
    std::erase(one, '\n');
    EXPECT_NE(fault(one).find(words), std::string::npos) << fault(one);
  }
  EXPECT_FALSE(with_setting(", \"max_overtaken\": 4294967297"));
}

TEST(Trace, WhatNoTimeOrMemoryHoldsIsRefusedWithItsLine) {
  const std::string good = R"({"timestamp": 0, "input_length": 1, "output_length": 1})";
  for (const char* line : {R"({"timestamp": 1e15, "input_length": 1, "output_length": 1})",
                           R"({"timestamp": 0, "input_length": 2000000000, "output_length": 1})",
                           R"({"timestamp": 0, "input_length": 1, "output_length": 2000000000})"})
    EXPECT_TRUE(fault(good + "\n" + line).starts_with("line 2 of test")) << line;
  EXPECT_TRUE(fault(good + "\n" + std::string(100'000, '[')).starts_with("line 2 of test"));
  EXPECT_TRUE(fault(std::string(kMaxTraceLineBytes + 1, 'x')).starts_with("line 1 of test"));
}

}  // namespace
}  // namespace hocket
