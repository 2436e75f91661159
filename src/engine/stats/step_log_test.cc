// Tests the lines word by word, because scripts parse them.
#include "engine/stats/step_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/log.h"

namespace hocket {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Duration kStep = std::chrono::milliseconds(10);

// A scheduler whose steps take 10 ms, and its log.
class StepLogTest : public ::testing::Test {
 protected:
  void start(SchedulerOptions options, int decode_interval = 40) {
    options.num_pages = options.num_pages > 0 ? options.num_pages : 64;
    options.page_tokens = 4;
    options.max_prefill_tokens = 2048;
    options.context_length = 256;
    scheduler_ = std::make_unique<Scheduler>(options);
    step_log_ = StepLog(decode_interval);
  }
  void add(int id, int prompt_len, int max_new, int first_token = 0) {
    RequestInput input{.id = RequestId{static_cast<uint64_t>(id)}, .arrived = now_};
    for (int i = 0; i < prompt_len; ++i) input.prompt.push_back(TokenId{first_token + i});
    input.sampling.max_new_tokens = max_new;
    ASSERT_TRUE(scheduler_->add(std::move(input)));
  }
  const Batch& schedule() { return scheduler_->schedule(now_); }
  void finish(const Batch& batch) {
    now_ += kStep;
    std::vector<SampledToken> sampled;
    for (const Slice& slice : batch.slices)
      if (slice.is_sampled) sampled.push_back({TokenId{200}});
    scheduler_->commit(batch, sampled, now_);
    step_log_.note(batch, scheduler_->stats(), now_, kStep, transfers_);
    scheduler_->take_finished();
  }
  // Returns the lines of num_steps steps, without time and level.
  std::vector<std::string> lines_of(int num_steps) {
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < num_steps; ++i) finish(schedule());
    std::istringstream text(::testing::internal::GetCapturedStderr());
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);)
      if (const size_t at = line.find(" batch, "); at != std::string::npos)
        lines.push_back(line.substr(line.rfind(' ', at - 1) + 1));
    return lines;
  }

  std::unique_ptr<Scheduler> scheduler_;
  StepLog step_log_;
  std::optional<StepTransfers> transfers_;
  TimePoint now_ = TimePoint{} + std::chrono::seconds(5);
};

TEST_F(StepLogTest, PrefillLines) {
  start({.chunk_tokens = 16});
  add(1, 12, 8);
  EXPECT_THAT(lines_of(1),
              ElementsAre("Prefill batch, #new-seq: 1, #new-token: 12, #cached-token: 0, token "
                          "usage: 0.05, #running-req: 0, #queue-req: 0, #pending-token: 0, cuda "
                          "graph: False, input throughput (token/s): 1200.00, cache hit "
                          "rate: 0.00%"));
  add(2, 13, 4);       // shares 12 tokens
  add(3, 30, 4, 100);  // 15 of 30 tokens have room, in pages 12
  add(4, 5, 4, 50);    // waits
  EXPECT_THAT(lines_of(1),
              ElementsAre("Prefill batch, #new-seq: 2, #new-token: 13, #cached-token: 12, token "
                          "usage: 0.11, #running-req: 1, #queue-req: 1, #pending-token: 23, cuda "
                          "graph: False, input throughput (token/s): 1300.00, cache hit "
                          "rate: 21.82%"));
  // A continued chunk is counted again, its prefix is not.
  EXPECT_THAT(lines_of(1),
              ElementsAre("Prefill batch, #new-seq: 1, #new-token: 16, #cached-token: 0, token "
                          "usage: 0.17, #running-req: 2, #queue-req: 1, #pending-token: 7, cuda "
                          "graph: False, input throughput (token/s): 1600.00, cache hit "
                          "rate: 21.82%"));
}

TEST_F(StepLogTest, ADecodeLineEverySoManySteps) {
  start({}, 3);
  add(1, 8, 20);
  add(2, 8, 20, 100);
  lines_of(1);
  EXPECT_THAT(lines_of(2), IsEmpty());
  // 2 + 2 + 2 + 2 tokens in 40 ms.
  EXPECT_THAT(lines_of(1),
              ElementsAre("Decode batch, #running-req: 2, #token: 24, token usage: 0.09, cuda "
                          "graph: False, gen throughput (token/s): 200.00, #queue-req: 0"));
  EXPECT_THAT(lines_of(6), ::testing::SizeIs(2));
}

TEST_F(StepLogTest, WithDraftsItSaysHowManyHeldSinceTheLastLine) {
  start({}, 1);
  add(1, 8, 20);
  lines_of(1);
  const Batch& batch = schedule();
  SchedulerStats stats = scheduler_->stats();
  stats.num_verified_total = 10;
  stats.drafted_total = {10, 10};
  stats.accepted_total = {9, 6};
  const auto line = [&] {
    ::testing::internal::CaptureStderr();
    step_log_.note(batch, stats, now_ + kStep, kStep);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(line(), ::testing::HasSubstr("token usage: 0.05, accept len: 2.50, accept rate: 0.75,"
                                           " cuda graph: False, gen throughput"));
  stats.num_verified_total = 14;
  stats.drafted_total = {14, 14};
  stats.accepted_total = {11, 6};
  EXPECT_THAT(line(), ::testing::HasSubstr("accept len: 1.50, accept rate: 0.25, cuda"));
  EXPECT_THAT(line(), ::testing::HasSubstr("token usage: 0.05, cuda"));
}

// A prefill line has the overlap of its step, a decode line that of the decode steps since the last
// line. It stands at the end, so that parsers of the other fields still work.
TEST_F(StepLogTest, OfSeveralRanksItSaysWhatWasHidden) {
  using ::testing::EndsWith;
  start({}, 2);
  add(1, 8, 20);
  transfers_ = {.hidden = std::chrono::microseconds(30), .exposed = std::chrono::microseconds(10)};
  EXPECT_THAT(lines_of(1),
              ElementsAre(EndsWith("(token/s): 800.00, cache hit rate: 0.00%, overlap: 75 %")));
  transfers_ = {.hidden = std::chrono::microseconds(10), .exposed = std::chrono::microseconds(10)};
  EXPECT_THAT(lines_of(1), IsEmpty());
  transfers_ = {.hidden = {}, .exposed = std::chrono::microseconds(80), .hidden_is_bound = true};
  EXPECT_THAT(lines_of(1), ElementsAre(EndsWith("#queue-req: 0, overlap: at most 10 %")));
  EXPECT_THAT(lines_of(2), ElementsAre(EndsWith("#queue-req: 0, overlap: at most 0 %")));
  transfers_->hidden_is_bound = false;
  EXPECT_THAT(lines_of(2), ElementsAre(EndsWith("#queue-req: 0, overlap: 0 %")));
  transfers_ = StepTransfers{};
  EXPECT_THAT(lines_of(2), ElementsAre(EndsWith("#queue-req: 0")));
}

// Decode rows of a mixed step are no new sequences, a prompt of one token is; and the step counts
// for the next decode line.
TEST_F(StepLogTest, MixedStepsAreBoth) {
  start({.chunk_tokens = 16, .prefill_policy = PrefillPolicy::mixed}, 2);
  add(1, 8, 20);
  lines_of(2);
  add(2, 1, 20, 100);
  EXPECT_THAT(lines_of(1),
              ElementsAre("Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: 0, token "
                          "usage: 0.06, #running-req: 1, #queue-req: 0, #pending-token: 0, cuda "
                          "graph: False, input throughput (token/s): 100.00, cache hit "
                          "rate: 0.00%",
                          "Decode batch, #running-req: 1, #token: 16, token usage: 0.06, cuda "
                          "graph: False, gen throughput (token/s): 133.33, #queue-req: 0"));
  EXPECT_EQ(step_log_.counts().num_prefill, 1u);
  EXPECT_EQ(step_log_.counts().num_decode, 1u);
  EXPECT_EQ(step_log_.counts().num_mixed, 1u);
  EXPECT_EQ(step_log_.counts().prefill_compute_tokens, 9u);
  EXPECT_EQ(step_log_.counts().decode_tokens, 2u);
}

TEST_F(StepLogTest, APauseIsNotCountedAsTime) {
  start({}, 1);
  add(1, 8, 2);
  lines_of(2);
  now_ += std::chrono::hours(1);
  add(2, 8, 2, 100);
  EXPECT_THAT(lines_of(2).back(), ::testing::HasSubstr("gen throughput (token/s): 100.00"));
  EXPECT_EQ(step_log_.gen_throughput(), 0);  // no second is over
  add(3, 8, 120, 50);
  lines_of(120);
  EXPECT_NEAR(step_log_.gen_throughput(), 100, 0.01);
  EXPECT_NEAR(step_log_.input_throughput(), 24, 0.01);  // three prompts of 8 tokens in a second
}

// Plays tests/scenarios/retracted_resumes_first.txt: the second request is retracted with nine
// tokens of its own, finds its prompt in the cache and computes those nine again.
TEST_F(StepLogTest, WhatIsComputedAgain) {
  start({.num_pages = 9, .conservativeness = 0.01});
  add(1, 8, 13);
  lines_of(1);
  add(2, 8, 13, 100);
  lines_of(10);
  EXPECT_EQ(scheduler_->stats().num_retracted_total, 1u);
  EXPECT_EQ(scheduler_->stats().retracted_input_total, 8u);
  EXPECT_EQ(scheduler_->stats().retracted_output_total, 9u);
  EXPECT_EQ(step_log_.counts().num_retracted_lately, 0);
  EXPECT_THAT(lines_of(4), ElementsAre(::testing::StartsWith(
                               "Prefill batch, #new-seq: 1, #new-token: 9, #cached-token: 8, ")));
  EXPECT_EQ(step_log_.counts().num_retracted_lately, 1);
  EXPECT_EQ(step_log_.counts().prefill_compute_tokens, 8u + 8 + 9);
  EXPECT_EQ(step_log_.counts().prefill_cache_tokens, 8u);
  EXPECT_EQ(scheduler_->stats().prompt_tokens_total, 16u);  // each once
  EXPECT_EQ(scheduler_->stats().cached_tokens_total, 0u);
  lines_of(3);
  EXPECT_TRUE(scheduler_->idle());
}

TEST_F(StepLogTest, OverlappedStepsAreCounted) {
  start({});
  add(1, 8, 4);
  const Batch& first = schedule();
  const Batch& second = schedule();
  EXPECT_FALSE(first.overlapped);
  EXPECT_TRUE(second.overlapped);
  finish(first);
  finish(second);
  EXPECT_EQ(step_log_.counts().num_overlapped, 1u);
}

}  // namespace
}  // namespace hocket
