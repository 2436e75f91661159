// Tests which tokens cached sequences have behind given ones.
#include <gtest/gtest.h>

#include <vector>

#include "policy/cache/radix_cache.h"

namespace hocket {
namespace {

struct TokenList : std::vector<TokenId> {
  using vector::vector;
  TokenList operator+(const TokenList& more) const {
    TokenList all = *this;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TokenList tokens_from(int begin, int end) {
  TokenList tokens;
  for (int i = begin; i < end; ++i) tokens.push_back(TokenId{i});
  return tokens;
}

class ContinuationTest : public ::testing::Test {
 protected:
  std::vector<PageId> take(int count) {
    std::vector<PageId> ids(static_cast<size_t>(count));
    EXPECT_TRUE(pages.take(ids));
    return ids;
  }
  void insert(const TokenList& tokens, uint64_t name_space = 0) {
    auto ids = take(static_cast<int>(tokens.size()) / 4);
    const Lease lease = cache.insert(name_space, tokens, ids);
  }
  TokenList behind(const TokenList& rest, const Lease& path = {}, size_t most = 6,
                   uint64_t name_space = 0) {
    TokenList out(most);
    out.resize(cache.continuation(name_space, path, rest, out));
    return out;
  }

  PageAllocator pages{32, 4};
  RadixCache cache{pages, {}};
};

TEST_F(ContinuationTest, IsWhatCachedSequencesHaveBehindTheTokens) {
  EXPECT_EQ(behind(tokens_from(0, 3)), TokenList());
  insert(tokens_from(0, 12));
  EXPECT_EQ(behind(tokens_from(0, 3)), tokens_from(3, 9));
  EXPECT_EQ(behind(tokens_from(0, 8)), tokens_from(8, 12));
  EXPECT_EQ(behind({}), tokens_from(0, 6));
  EXPECT_EQ(behind(tokens_from(0, 12)), TokenList());
  EXPECT_EQ(behind(tokens_from(0, 2) + tokens_from(7, 8)), TokenList());
  EXPECT_EQ(behind(tokens_from(0, 6) + tokens_from(9, 10)), TokenList());
  EXPECT_EQ(behind(tokens_from(0, 3), {}, 0), TokenList());
}

TEST_F(ContinuationTest, GoesOnFromALeaseAndThroughSeveralNodes) {
  insert(tokens_from(0, 8) + tokens_from(50, 58));
  insert(tokens_from(0, 8) + tokens_from(70, 74));
  std::vector<PageId> mine = take(1);
  const Lease lease = cache.insert(0, tokens_from(0, 4), mine);
  EXPECT_EQ(behind(tokens_from(4, 6), lease, 8), tokens_from(6, 8) + tokens_from(70, 74));
  EXPECT_EQ(behind(tokens_from(4, 8) + tokens_from(50, 51), lease), tokens_from(51, 57));
  EXPECT_EQ(behind(tokens_from(4, 8) + tokens_from(60, 61), lease), TokenList());
}

TEST_F(ContinuationTest, IsThatWhichWasUsedLast) {
  insert(tokens_from(0, 4) + tokens_from(50, 54));
  insert(tokens_from(0, 4) + tokens_from(70, 74));
  EXPECT_EQ(behind(tokens_from(0, 4)), tokens_from(70, 74));
  cache.match(0, tokens_from(0, 4) + tokens_from(50, 54));
  EXPECT_EQ(behind(tokens_from(0, 4)), tokens_from(50, 54));
}

TEST_F(ContinuationTest, IsOfTheSameNamespaceAlone) {
  insert(tokens_from(0, 8), 1);
  EXPECT_EQ(behind(tokens_from(0, 4)), TokenList());
  EXPECT_EQ(behind(tokens_from(0, 4), {}, 6, 1), tokens_from(4, 8));
}

}  // namespace
}  // namespace hocket
