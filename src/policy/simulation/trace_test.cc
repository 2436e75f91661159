#include "policy/simulation/trace.h"

#include <gtest/gtest.h>

#include <numeric>
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
  // The last block holds the rest.
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
  EXPECT_TRUE(trace.scheduler->mixed_chunks);
  EXPECT_FALSE(trace.scheduler->prefix_cache);
  EXPECT_EQ(trace.policy_name, "lpm");
  ASSERT_TRUE(trace.measured);
  EXPECT_EQ(trace.measured->ttft_p50_ms, 1.5);
  EXPECT_EQ(shared_len(trace.requests[0], trace.requests[1]), 20);
}

TEST(Trace, SaysWhichLineIsWrong) {
  EXPECT_EQ(fault(""), "the trace test has no requests");
  EXPECT_NE(fault("{\"timestamp\": 0, \"input_length\": 1, \"output_length\": 1}\nnonsense")
                .find("line 2 of test"),
            std::string::npos);
  EXPECT_NE(fault("{\"timestamp\": 0, \"input_length\": 0, \"output_length\": 1}")
                .find("lengths are at least 1"),
            std::string::npos);
  EXPECT_NE(
      fault("{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [1], "
            "\"hash_lengths\": [10]}")
          .find("do not add up"),
      std::string::npos);
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

}  // namespace
}  // namespace hocket
