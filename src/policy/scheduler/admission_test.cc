// Tests which requests may join the running ones, and which have to leave them.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "policy/scheduler/new_token_ratio.h"
#include "policy/scheduler/prefill_adder.h"
#include "policy/scheduler/retract.h"
#include "policy/scheduler/running_batch.h"

namespace hocket {
namespace {

TEST(NewTokenRatioTest, FallsInSixHundredStepsAndJumps) {
  NewTokenRatio ratio(1.0);
  EXPECT_DOUBLE_EQ(ratio.now(), 0.7);
  for (int i = 0; i < 300; ++i) ratio.decay();
  EXPECT_NEAR(ratio.now(), (0.7 + 0.098) / 2, 1e-9);
  for (int i = 0; i < 400; ++i) ratio.decay();
  EXPECT_DOUBLE_EQ(ratio.now(), 0.098);
  ratio.raise(60, 199, 2);
  EXPECT_DOUBLE_EQ(ratio.now(), 0.5);
  ratio.raise(0, 4000, 2);
  EXPECT_DOUBLE_EQ(ratio.now(), 0.5) << "young survivors do not lower it";
  for (int i = 0; i < 601; ++i) ratio.decay();
  EXPECT_DOUBLE_EQ(ratio.now(), 0.098);
  EXPECT_DOUBLE_EQ(NewTokenRatio(9).now(), 1.0);
}

// Tries admissions without a cached prefix, against budgets of 4-token pages.
struct AdderTest : ::testing::Test {
  static Admission add(PrefillAdder& adder, int prompt, int remaining, int64_t available) {
    return adder.add({.total_len = prompt, .remaining_new_tokens = remaining}, available);
  }
  PrefillBudget budget{.page_tokens = 4, .chunk_tokens = 16, .max_prefill_tokens = 64};
};

TEST_F(AdderTest, MemoryMustExceedPromptNewTokensAndAPage) {
  PrefillAdder adder(budget);
  EXPECT_EQ(add(adder, 8, 10, 22).result, AddResult::no_tokens);
  EXPECT_EQ(add(adder, 8, 10, 23).result, AddResult::added);
}

TEST_F(AdderTest, NewTokensBeyond4096AreNotReserved) {
  PrefillAdder adder(budget);
  EXPECT_EQ(add(adder, 8, 100000, 8 + 4096 + 5).result, AddResult::added);
  EXPECT_EQ(adder.verdict(4096 + 5), AddResult::added);
  EXPECT_EQ(adder.verdict(4096 + 4), AddResult::no_tokens);
}

TEST_F(AdderTest, WhatOneIsPromisedTheNextCannotHave) {
  budget.reserved_tokens = 10;
  PrefillAdder adder(budget);
  EXPECT_EQ(add(adder, 4, 6, 100).result, AddResult::added);  // after this 20 tokens are reserved
  EXPECT_EQ(add(adder, 4, 6, 34).result, AddResult::no_tokens);
  EXPECT_EQ(add(adder, 4, 6, 35).result, AddResult::added);
}

TEST_F(AdderTest, TheRestOfACutPromptIsReserved) {
  PrefillAdder adder(budget);
  const Admission cut = add(adder, 40, 30, 200);
  EXPECT_EQ(cut.len, 16);
  EXPECT_EQ(adder.verdict(29), AddResult::pass_full)
      << "24 and a page are reserved; the pass is full";
  EXPECT_EQ(adder.verdict(28), AddResult::no_tokens);
}

TEST_F(AdderTest, RowsAreChargedInWholePages) {
  PrefillAdder adder(budget);
  EXPECT_EQ(add(adder, 5, 1, 1000).len, 5);
  EXPECT_EQ(add(adder, 12, 1, 1000).len, 8) << "16 - 8 rows are left";
  PrefillAdder small(budget);
  EXPECT_EQ(add(small, 13, 1, 1000).len, 13);
  EXPECT_EQ(small.verdict(1000), AddResult::pass_full);
}

TEST_F(AdderTest, AChunkAfterAPartialHitEndsAtAPageBorder) {
  PrefillAdder adder(budget);
  const Admission cut = adder.add({.total_len = 60, .prefix_len = 6, .prefix_pages = 1}, 1000);
  EXPECT_EQ(cut.len, 14);
}

TEST_F(AdderTest, AloneTheExactNeedIsEnough) {
  budget.nothing_running = true;
  PrefillAdder adder(budget);
  EXPECT_EQ(add(adder, 8, 9, 15).result, AddResult::no_tokens);
  EXPECT_EQ(add(adder, 8, 9, 16).result, AddResult::added);
  EXPECT_FALSE(adder.alone());
}

TEST_F(AdderTest, AChunkWaitsForRunningRequestsOnly) {
  budget.reserved_tokens = 10;
  const PrefillCandidate rest{.total_len = 40, .prefix_len = 16, .prefix_pages = 4};
  PrefillAdder busy(budget);
  EXPECT_EQ(busy.continue_chunked(rest, 12).result, AddResult::no_tokens);
  EXPECT_EQ(PrefillAdder(budget).continue_chunked(rest, 19).len, 8);
  budget.reserved_tokens = 0;
  EXPECT_EQ(PrefillAdder(budget).continue_chunked(rest, 12).len, 12);
}

TEST(RunningBatchTest, TheVictimLosesLeast) {
  RunningBatch running(4, 4);
  auto add = [&](uint64_t id, int prompt_len, size_t num_tokens) {
    auto request = std::make_unique<Request>();
    request->id = RequestId{id};
    request->prompt_len = prompt_len;
    request->tokens.resize(num_tokens);
    running.add(std::move(request));
  };
  add(1, 9, 12);  // three tokens generated
  add(2, 5, 7);   // two tokens generated
  add(3, 6, 8);   // two tokens generated, a longer prompt
  add(4, 6, 8);   // the same, but newer
  EXPECT_EQ(value(running.take(retraction_victim(running.requests()))->id), 4u);
  EXPECT_EQ(value(running.take(retraction_victim(running.requests()))->id), 3u);
  EXPECT_EQ(value(running.take(retraction_victim(running.requests()))->id), 2u);
  EXPECT_EQ(running.size(), 1);
}

}  // namespace
}  // namespace hocket
