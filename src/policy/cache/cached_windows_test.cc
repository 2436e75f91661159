#include "policy/cache/cached_windows.h"

#include <gtest/gtest.h>

#include <vector>

#include "policy/cache/radix_cache.h"

namespace hocket {
namespace {

constexpr int kTokensOfOne = 4;  // tokens of a page
constexpr int kWindow = 6;       // the token behind n others sees the last 5 of them

std::vector<TokenId> numbered(int first, int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(TokenId{first + i});
  return tokens;
}

class CachedWindowsTest : public ::testing::Test {
 protected:
  void TearDown() override { cache.check_integrity(); }

  // Puts a sequence into the tree, without the first `given_up` of its pages of window layers.
  void insert(const std::vector<TokenId>& tokens, int given_up = 0) {
    std::vector<PageId> ids(tokens.size() / kTokensOfOne), of_windows(ids.size(), kNoPage);
    ASSERT_TRUE(pages.take(ids));
    ASSERT_TRUE(windows.take(std::span(of_windows).subspan(static_cast<size_t>(given_up))));
    const Lease lease = cache.insert(0, tokens, ids, 0, of_windows);
    ASSERT_EQ(lease.len(), static_cast<int>(tokens.size()));
    cache.check_integrity();
  }
  int len(const std::vector<TokenId>& tokens) {
    const PrefixMatch found = cache.match(0, tokens);
    cache.check_integrity();
    const int matched = found.len(kTokensOfOne);
    EXPECT_EQ(matched, cache.match_len(0, tokens));
    return matched;
  }
  // Pins what a request sees behind all of `tokens`, and gives it up as one that ended.
  void use(const std::vector<TokenId>& tokens) { EXPECT_GT(len(tokens), 0); }

  PageAllocator pages{64, kTokensOfOne};
  PageAllocator windows{32, kTokensOfOne};
  RadixCache cache{pages, {.windows = &windows, .window = {.window = kWindow}}};
};

TEST_F(CachedWindowsTest, AMatchPinsWhatTheNextTokenSees) {
  insert(numbered(0, 40));
  const PrefixMatch found = cache.match(0, numbered(0, 40));
  EXPECT_EQ(found.len(kTokensOfOne), 40);
  EXPECT_EQ(found.window.begin(), 35 / kTokensOfOne);
  EXPECT_EQ(found.window.end(), 10);
  ASSERT_EQ(found.window_pages.size(), 10u);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(found.window_pages[static_cast<size_t>(i)] == kNoPage, i < 8) << i;
  EXPECT_EQ(cache.num_evictable_window_pages(), 8);
}

TEST_F(CachedWindowsTest, APartOfAPageIsCopiedInAllLayers) {
  insert(numbered(0, 40));
  const PrefixMatch found = cache.match(0, numbered(0, 30));
  EXPECT_EQ(found.partial_len, 2);
  EXPECT_NE(found.window_partial_source, kNoPage);
  EXPECT_EQ(found.window.begin(), 25 / kTokensOfOne);
  EXPECT_EQ(found.window.end(), 8);
}

TEST_F(CachedWindowsTest, AMatchEndsWhereAWindowIsWhole) {
  insert(numbered(0, 40), 5);
  EXPECT_EQ(len(numbered(0, 40)), 40);
  EXPECT_EQ(len(numbered(0, 28)), 28);  // its token sees 23 to 27, pages 5 and 6
  EXPECT_EQ(len(numbered(0, 26)), 26) << "a part of page 6 is copied, and it sees 21 to 25";
  EXPECT_EQ(len(numbered(0, 24)), 0) << "page 4 is needed, and so are all before it";
  EXPECT_EQ(cache.match(0, numbered(0, 24)).longest_len, 24);
}

TEST_F(CachedWindowsTest, AfterATombstoneAnEarlierPlaceServes) {
  insert(numbered(0, 16));     // ends with its window
  insert(numbered(0, 40), 7);  // its first four pages are duplicates, the next three given up
  EXPECT_EQ(len(numbered(0, 40)), 40);
  EXPECT_EQ(len(numbered(0, 32)), 16) << "page 6 was given up";
  EXPECT_EQ(len(numbered(0, 18)), 16) << "the page to copy from was given up";
}

TEST_F(CachedWindowsTest, ATombstoneIsFilledByTheNextOneWhoComputesIt) {
  insert(numbered(0, 40), 7);
  EXPECT_EQ(len(numbered(0, 24)), 0);
  insert(numbered(0, 24));
  EXPECT_EQ(len(numbered(0, 24)), 24);
  EXPECT_EQ(cache.num_window_pages(), 3 + 6);
  EXPECT_EQ(cache.num_cached_pages(), 10);
}

TEST_F(CachedWindowsTest, DuplicatesGoBack) {
  insert(numbered(0, 40));
  insert(numbered(0, 40));
  EXPECT_EQ(cache.num_window_pages(), 10);
  EXPECT_EQ(windows.num_free(), windows.num_pages() - 10);
  EXPECT_EQ(pages.num_free(), pages.num_pages() - 10);
}

TEST_F(CachedWindowsTest, TheOnePinnedLongestAgoGoesFirst) {
  insert(numbered(0, 16));
  insert(numbered(100, 16));
  use(numbered(100, 16));
  use(numbered(0, 16));
  cache.evict_window(4);  // the first two pages of both were never used again
  EXPECT_EQ(len(numbered(0, 16)), 16);
  EXPECT_EQ(len(numbered(100, 16)), 16);
  use(numbered(0, 16));
  cache.evict_window(1);
  EXPECT_EQ(len(numbered(0, 16)), 16);
  EXPECT_EQ(len(numbered(100, 16)), 0);
  EXPECT_EQ(cache.num_cached_pages(), 8) << "the pages of other layers stay";
  EXPECT_EQ(cache.num_evicted_window_pages_total(), 5u);
}

TEST_F(CachedWindowsTest, PagesThatOneRequestPassedGoBeforeEnds) {
  insert(numbered(0, 16));
  use(numbered(0, 16));
  std::vector<PageId> ids(4), of_windows(4);
  ASSERT_TRUE(pages.take(ids));
  ASSERT_TRUE(windows.take(of_windows));
  const Lease lease = cache.insert(0, numbered(100, 16), ids, 0, of_windows);
  WindowLease window = cache.pin_window(0, of_windows);
  window.release_before(2);
  cache.evict_window(4);
  EXPECT_EQ(len(numbered(0, 16)), 16) << "evicted were its pages 0 and 1, and the two passed";
  EXPECT_EQ(len(numbered(100, 16)), 16);
  EXPECT_EQ(cache.num_window_pages(), 4);
}

TEST_F(CachedWindowsTest, NothingPinnedIsEvicted) {
  insert(numbered(0, 16));
  {
    const PrefixMatch found = cache.match(0, numbered(0, 16));
    cache.evict_window(100);
    EXPECT_EQ(cache.num_window_pages(), 2);
    EXPECT_EQ(cache.evict(100), 0) << "the whole path is leased";
  }
  cache.evict_window(100);
  EXPECT_EQ(windows.num_free(), windows.num_pages());
}

TEST_F(CachedWindowsTest, PagesOfTrimmedNodesGoToo) {
  insert(numbered(0, 40));
  EXPECT_EQ(cache.evict(3), 3);
  EXPECT_EQ(cache.num_window_pages(), 7);
  EXPECT_EQ(len(numbered(0, 40)), 28);
  cache.flush();
  EXPECT_EQ(windows.num_free(), windows.num_pages());
  EXPECT_EQ(pages.num_free(), pages.num_pages());
}

TEST_F(CachedWindowsTest, NodesMayBeSplit) {
  insert(numbered(0, 40));
  std::vector<TokenId> other = numbered(0, 24);
  for (const TokenId token : numbered(500, 8)) other.push_back(token);
  insert(other);
  EXPECT_EQ(len(numbered(0, 40)), 40);
  EXPECT_EQ(len(other), 32);
  EXPECT_EQ(cache.num_window_pages(), 10 + 2);
}

}  // namespace
}  // namespace hocket
