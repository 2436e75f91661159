#include "policy/cache/tree_bytes.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/allocated_bytes_testing.h"
#include "policy/cache/radix_cache.h"

namespace hocket {
namespace {

constexpr int kPageTokens = 16, kPages = 1024;

class TreeBytesTest : public ::testing::TestWithParam<bool> {
 protected:
  // Adds a sequence of fresh pages whose tokens are those of no other.
  void insert(RadixCache& cache, int num_pages, uint64_t name_space) {
    std::vector<TokenId> tokens(static_cast<size_t>(num_pages * kPageTokens));
    for (TokenId& token : tokens) token = TokenId{next_token_++};
    std::vector<PageId> ids(static_cast<size_t>(num_pages)), windows;
    if (pages_.num_free() < num_pages) cache.evict(num_pages - pages_.num_free());
    ASSERT_TRUE(pages_.take(ids));
    if (GetParam()) {
      windows.resize(ids.size());
      ASSERT_TRUE(windows_.take(windows));
    }
    static_cast<void>(cache.insert({name_space}, tokens, ids, 0, windows));
    last_ = std::move(tokens);
  }
  RadixCache::Options options() {
    return {.windows = GetParam() ? &windows_ : nullptr, .window = {.window = GetParam() ? 8 : 0}};
  }
  int64_t planned() const {
    return max_tree_bytes({.num_pages = kPages,
                           .page_tokens = kPageTokens,
                           .num_window_pages = GetParam() ? kPages : 0});
  }

  PageAllocator pages_{kPages, kPageTokens}, windows_{kPages, kPageTokens};
  std::vector<TokenId> last_;
  int next_token_ = 0;
};

TEST_P(TreeBytesTest, HoldATreeWhosePagesAreNodesInNamespacesOfTheirOwn) {
  const int64_t before = allocated_bytes();
  RadixCache cache(pages_, options());
  for (int i = 0; i < kPages; ++i) insert(cache, 1, static_cast<uint64_t>(i));
  const int64_t taken = allocated_bytes() - before;
  EXPECT_EQ(cache.num_cached_pages(), kPages);
  EXPECT_LE(taken, planned());
  EXPECT_TRUE(taken == 0 || taken > planned() / 2) << taken;
}

// Each sequence is evicted up to its first page and used again then.
TEST_P(TreeBytesTest, HoldNodesThatHaveLostMostOfTheirPages) {
  constexpr int kLong = kPages / 4;
  const int64_t before = allocated_bytes();
  RadixCache::Options newest_first = options();
  newest_first.eviction = EvictionPolicy::mru;
  RadixCache cache(pages_, newest_first);
  for (int i = 0; i < 128; ++i) {
    insert(cache, kLong, 0);
    cache.evict(kLong - 1);
    EXPECT_EQ(cache.match({}, last_).lease.len(), kPageTokens);
  }
  EXPECT_LE(allocated_bytes() - before, planned());
}

// A sequence that is split at each page keeps no page's tokens twice.
TEST_P(TreeBytesTest, HoldASequenceThatIsSplitAtEachPage) {
  const int64_t before = allocated_bytes();
  RadixCache cache(pages_, options());
  insert(cache, kPages, 0);
  for (size_t num_pages = 1; num_pages < kPages; ++num_pages)
    static_cast<void>(cache.pin({}, std::span(last_).first(num_pages * kPageTokens)));
  EXPECT_LE(allocated_bytes() - before, planned());
}

INSTANTIATE_TEST_SUITE_P(WithWindowsAndWithout, TreeBytesTest, ::testing::Bool());

}  // namespace
}  // namespace hocket
