// Tests that pages which come back from a slower tier are pages of the tree like any others.
#include <gtest/gtest.h>

#include "policy/scheduler/fake_engine_testing.h"
#include "policy/scheduler/fake_scheduler_hooks_testing.h"

namespace hocket {
namespace {

std::vector<TokenId> restore_tokens(int count, int first = 5000) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(TokenId{first + i});
  return tokens;
}

// Returns the number of pages that restore() gave.
int restore(Scheduler& scheduler, std::span<const TokenId> tokens, int max_pages) {
  int num_pages = 0;
  const bool done = scheduler.restore(
      {}, tokens, max_pages, [&](std::span<const PageId> pages) { num_pages = std::ssize(pages); });
  EXPECT_TRUE(done || num_pages == 0);
  return num_pages;
}

RequestInput restore_input(std::span<const TokenId> tokens) {
  RequestInput input = numbered_input(9, 1, 2);
  input.prompt.assign(tokens.begin(), tokens.end());
  return input;
}

TEST(RestoreTest, APromptBeginsBehindThePagesThatCameBack) {
  Scheduler scheduler({.num_pages = 16, .page_tokens = 4});
  const auto tokens = restore_tokens(14);
  EXPECT_EQ(restore(scheduler, std::span(tokens).first(8), 2), 2);
  EXPECT_EQ(restore(scheduler, std::span(tokens).first(12), 4), 1) << "two are there";
  EXPECT_EQ(restore(scheduler, std::span(tokens).first(12), 4), 0) << "all are there";
  scheduler.check_integrity();
  ASSERT_TRUE(scheduler.add(restore_input(tokens)));
  const Batch& batch = scheduler.schedule({});
  ASSERT_EQ(batch.slices.size(), 1u);
  EXPECT_EQ(batch.slices[0].begin, 12);
  EXPECT_EQ(scheduler.stats().restored_tokens_total, 12u);
  scheduler.commit(batch, std::vector<SampledToken>{{TokenId{1}, false}}, {});
}

TEST(RestoreTest, PagesWhoseBeginningIsMissingAreRefused) {
  Scheduler scheduler({.num_pages = 16, .page_tokens = 4});
  const auto tokens = restore_tokens(12);
  EXPECT_EQ(restore(scheduler, tokens, 2), 0) << "the first page is not there";
  EXPECT_EQ(scheduler.stats().num_free_pages, 16);
}

TEST(RestoreTest, OldPrefixesGiveWayAndPagesOfRequestsDoNot) {
  Scheduler scheduler({.num_pages = 8, .page_tokens = 4});
  EXPECT_EQ(restore(scheduler, restore_tokens(32, 100), 8), 8);
  EXPECT_EQ(restore(scheduler, restore_tokens(16, 900), 4), 4);
  EXPECT_EQ(scheduler.stats().num_evicted_pages_total, 4u);
  ASSERT_TRUE(scheduler.add(numbered_input(1, 18, 4)));
  const Batch& batch = scheduler.schedule({});
  scheduler.commit(batch, std::vector<SampledToken>{{TokenId{1}, false}}, {});
  EXPECT_EQ(restore(scheduler, restore_tokens(24, 2000), 6), 0) << "a request has five of eight";
  EXPECT_EQ(restore(scheduler, restore_tokens(8, 2000), 2), 2);
  scheduler.abort(RequestId{1}, FinishReason::abort, {});
  scheduler.schedule({});
  scheduler.check_integrity();
}

TEST(RestoreTest, ARequestThatDidNotFitIsTriedAgain) {
  Scheduler scheduler({.num_pages = 8, .page_tokens = 4, .prefix_cache = true});
  EXPECT_EQ(restore(scheduler, restore_tokens(12), 3), 3);
  ASSERT_TRUE(scheduler.add(restore_input(restore_tokens(14))));
  EXPECT_EQ(scheduler.schedule({}).slices.size(), 1u);
}

TEST(RestoreTest, APromptWithStatesBeginsBehindAStateThatCameBack) {
  Scheduler scheduler({.num_pages = 16,
                       .page_tokens = 4,
                       .num_states = 4,
                       .state_tokens = 8,
                       .max_running_requests = 2});
  const auto tokens = restore_tokens(30);
  int slot_given = -1;
  const auto give_state = [&](int len) {
    return scheduler.restore_state({}, std::span(tokens).first(static_cast<size_t>(len)),
                                   [&](int slot) { slot_given = slot; });
  };
  EXPECT_FALSE(give_state(16)) << "its pages are not there";
  EXPECT_EQ(restore(scheduler, std::span(tokens).first(24), 6), 6);
  EXPECT_TRUE(give_state(16));
  EXPECT_EQ(scheduler.stats().num_cached_states, 1);
  scheduler.check_integrity();
  ASSERT_TRUE(scheduler.add(restore_input(tokens)));
  const Batch& batch = scheduler.schedule({});
  ASSERT_EQ(batch.slices.size(), 1u);
  const Slice& slice = batch.slices[0];
  EXPECT_EQ(slice.begin, 16);
  EXPECT_EQ(slice.states[0].end, 16);
  EXPECT_EQ(slice.states[0].slot, slot_given);
}

TEST(RestoreTest, APromptWithWindowsBeginsBehindAWindowThatCameBack) {
  Scheduler scheduler({.num_pages = 32,
                       .page_tokens = 4,
                       .num_window_pages = 28,
                       .window = {.window = 8},
                       .max_running_requests = 2});
  const auto tokens = restore_tokens(30);
  std::vector<int> given;
  const auto give_window = [&](size_t len) {
    given.clear();
    return scheduler.restore_window({}, std::span(tokens).first(len),
                                    [&](int index, PageId) { given.push_back(index); });
  };
  EXPECT_FALSE(give_window(16)) << "its pages are not there";
  EXPECT_EQ(restore(scheduler, std::span(tokens).first(24), 6), 6);
  EXPECT_EQ(scheduler.cached_len({}, tokens), 0) << "no window is there";
  EXPECT_TRUE(give_window(16));
  EXPECT_EQ(given, (std::vector<int>{0, 1}));
  EXPECT_EQ(scheduler.cached_len({}, tokens), 16);
  EXPECT_TRUE(give_window(20));
  EXPECT_EQ(given, (std::vector<int>{1})) << "the page before was there";
  EXPECT_EQ(scheduler.window_in_tree({}, std::span(tokens).first(20)).size(), 2u);
  EXPECT_EQ(scheduler.stats().num_cached_window_pages, 3);
  scheduler.check_integrity();
  ASSERT_TRUE(scheduler.add(restore_input(tokens)));
  const Batch& batch = scheduler.schedule({});
  ASSERT_EQ(batch.slices.size(), 1u);
  EXPECT_EQ(batch.slices[0].begin, 20);
}

// A peer awaits the prompt and has pages of 16 tokens, so its window behind token 16 is the page of
// the first 16. The tree has the last four of them in its window layers, and has lost the others.
TEST(RestoreTest, WindowsThatAPeerLacksAreComputedAgain) {
  for (const bool are_needed : {false, true}) {
    SCOPED_TRACE(are_needed);
    FakeSchedulerHooks hooks;
    hooks.peers_need_windows = are_needed;
    Scheduler scheduler({.num_pages = 32,
                         .page_tokens = 4,
                         .num_window_pages = 28,
                         .window = {.window = 4},
                         .max_running_requests = 2,
                         .hooks = &hooks});
    const auto tokens = restore_tokens(30);
    EXPECT_EQ(restore(scheduler, std::span(tokens).first(16), 4), 4);
    EXPECT_TRUE(
        scheduler.restore_window({}, std::span(tokens).first(16), [](int /*index*/, PageId) {}));
    RequestInput input = restore_input(tokens);
    input.border_tokens = 16;
    ASSERT_TRUE(scheduler.add(std::move(input)));
    const Batch& batch = scheduler.schedule({});
    ASSERT_EQ(batch.slices.size(), 1u);
    EXPECT_EQ(batch.slices[0].begin, are_needed ? 0 : 16);
    EXPECT_EQ(hooks.borders_asked, std::vector<int>{16});
    EXPECT_EQ(scheduler.stats().recomputed_tokens_total, are_needed ? 16u : 0u);
    scheduler.commit(batch, std::vector<SampledToken>{{TokenId{1}, false}}, {});
    scheduler.check_integrity();
    EXPECT_EQ(scheduler.window_in_tree({}, std::span(tokens).first(4)).front() != kNoPage,
              are_needed);
  }
}

// Two requests hold or reserve all pages of window layers, and take back what a window got.
TEST(RestoreTest, AWindowGivesWayToRequestsThatRun) {
  SchedulerOptions options{
      .num_pages = 64, .page_tokens = 4, .window = {.window = 8}, .max_running_requests = 2};
  options.num_window_pages = 2 * window_pages_of_request(options);
  FakeEngine engine(options, [](const Request&, std::span<const TokenId> history) {
    return SampledToken{.token = TokenId{static_cast<int>(history.size())}};
  });
  const auto old = restore_tokens(16, 100);
  for (const uint64_t i : {1, 2}) ASSERT_TRUE(engine.scheduler().add(numbered_input(i, 6, 40)));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(engine.step());
  ASSERT_EQ(engine.scheduler().stats().num_running, 2);
  EXPECT_TRUE(engine.restore_pages({}, old, 4));
  EXPECT_TRUE(engine.restore_window({}, old));
  EXPECT_EQ(engine.scheduler().cached_len({}, old), 16);
  while (engine.step()) engine.scheduler().check_integrity();
  EXPECT_EQ(engine.problem(), "");
}

TEST(RestoreTest, AWindowThatCameBackOutlivesOlderOnes) {
  SchedulerOptions options{
      .num_pages = 64, .page_tokens = 4, .window = {.window = 8}, .max_running_requests = 2};
  options.num_window_pages = 2 * window_pages_of_request(options);
  Scheduler scheduler(options);
  const int num_windows = options.num_window_pages / 2;
  for (int i = 0; i <= num_windows; ++i) {
    const auto tokens = restore_tokens(8, 100 * (i + 1));
    ASSERT_EQ(restore(scheduler, tokens, 2), 2);
    EXPECT_TRUE(scheduler.restore_window({}, tokens, [](int, PageId) {}));
    EXPECT_EQ(scheduler.cached_len({}, tokens), 8);
  }
  EXPECT_LT(scheduler.cached_len({}, restore_tokens(8, 100)), 8) << "the oldest went";
  scheduler.check_integrity();
}

TEST(RestoreTest, WithoutAPrefixCacheNothingComesBack) {
  Scheduler scheduler({.num_pages = 8, .page_tokens = 4, .prefix_cache = false});
  EXPECT_EQ(restore(scheduler, restore_tokens(12), 3), 0);
}

}  // namespace
}  // namespace hocket
