#include "policy/cache/cached_states.h"

#include <gtest/gtest.h>

#include <vector>

#include "policy/cache/radix_cache.h"

namespace hocket {
namespace {

constexpr int kTokensOfAPage = 4;

std::vector<TokenId> tokens_of(int first, int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(TokenId{first + i});
  return tokens;
}

class CachedStatesTest : public ::testing::Test {
 protected:
  // Puts a sequence into the tree, with a state at `border` of it if that is not 0.
  void insert(const std::vector<TokenId>& tokens, int border = 0) {
    std::vector<PageId> ids(tokens.size() / kTokensOfAPage);
    ASSERT_TRUE(pages.take(ids));
    const Lease lease = cache.insert(0, tokens, ids);
    ASSERT_EQ(lease.len(), static_cast<int>(ids.size()) * kTokensOfAPage);
    if (border > 0) cache.cache_state(lease, border, slots.take());
    cache.check_integrity();
  }
  PrefixMatch match(const std::vector<TokenId>& tokens) {
    PrefixMatch found = cache.match(0, tokens);
    cache.check_integrity();
    return found;
  }

  PageAllocator pages{64, kTokensOfAPage};
  SlotAllocator slots{4};
  RadixCache cache{pages, {.states = &slots}};
};

TEST_F(CachedStatesTest, AMatchEndsWhereAStateIsCached) {
  insert(tokens_of(0, 40), 16);
  const PrefixMatch found = match(tokens_of(0, 39));
  EXPECT_EQ(found.len(kTokensOfAPage), 16);
  EXPECT_EQ(found.longest_len, 39);
  EXPECT_EQ(found.state.len(), 16);
  EXPECT_GE(found.state.slot(), 0);
  EXPECT_EQ(found.partial_source, kNoPage);
  EXPECT_EQ(cache.match_len(0, tokens_of(0, 12)), 0) << "the state is behind these tokens";
}

TEST_F(CachedStatesTest, WithoutAStateNothingIsMatched) {
  insert(tokens_of(0, 40));
  const PrefixMatch found = match(tokens_of(0, 40));
  EXPECT_EQ(found.len(kTokensOfAPage), 0);
  EXPECT_EQ(found.longest_len, 40);
  EXPECT_FALSE(found.state);
}

TEST_F(CachedStatesTest, ASecondStateOfTheSamePlaceGoesBack) {
  insert(tokens_of(0, 40), 16);
  insert(tokens_of(0, 40), 16);
  EXPECT_EQ(cache.num_states(), 1);
  EXPECT_EQ(slots.num_free(), 3);
}

TEST_F(CachedStatesTest, TheStateThatSavesLeastIsEvicted) {
  insert(tokens_of(0, 40), 32);    // saves 32 tokens
  insert(tokens_of(100, 40), 8);   // saves 8
  insert(tokens_of(200, 40), 16);  // saves 16
  EXPECT_TRUE(cache.evict_state());
  EXPECT_EQ(cache.match_len(0, tokens_of(100, 40)), 0);
  EXPECT_EQ(cache.match_len(0, tokens_of(0, 40)), 32);
  EXPECT_EQ(cache.match_len(0, tokens_of(200, 40)), 16);
  EXPECT_EQ(cache.num_evicted_states_total(), 1u);
}

TEST_F(CachedStatesTest, AStateBehindAnotherSavesTheTokensBetween) {
  insert(tokens_of(0, 40), 32);
  insert(tokens_of(0, 40), 36);   // saves 4 more
  insert(tokens_of(100, 40), 8);  // saves 8
  EXPECT_TRUE(cache.evict_state());
  EXPECT_EQ(cache.match_len(0, tokens_of(0, 40)), 32);
  EXPECT_EQ(cache.match_len(0, tokens_of(100, 40)), 8);
}

TEST_F(CachedStatesTest, TheLastStateIsWorthMoreOnceTheOneAboveIsGone) {
  insert(tokens_of(0, 40), 8);     // saves 8
  insert(tokens_of(0, 40), 28);    // saves 20, and 28 behind the eviction of the one above
  insert(tokens_of(100, 40), 24);  // saves 24
  EXPECT_TRUE(cache.evict_state());
  EXPECT_EQ(cache.match_len(0, tokens_of(0, 40)), 28);
  EXPECT_EQ(cache.match_len(0, tokens_of(0, 12)), 0);
  EXPECT_TRUE(cache.evict_state());
  EXPECT_EQ(cache.match_len(0, tokens_of(100, 40)), 0);
  EXPECT_EQ(cache.match_len(0, tokens_of(0, 40)), 28);
}

// Few requests end at the states above the last one, so these keep their values.
TEST_F(CachedStatesTest, TheLastStateOutlivesThoseAboveIt) {
  for (const int border : {4, 8, 12, 40}) insert(tokens_of(0, 40), border);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(cache.evict_state());
  EXPECT_EQ(cache.match_len(0, tokens_of(0, 40)), 40);
  insert(tokens_of(100, 40), 28);  // value 28, and 8 of those that were evicted before
  EXPECT_TRUE(cache.evict_state());
  EXPECT_EQ(cache.match_len(0, tokens_of(0, 40)), 40);
  EXPECT_EQ(cache.match_len(0, tokens_of(100, 40)), 0);
}

TEST_F(CachedStatesTest, AnOldStateGivesWayToNewOnes) {
  insert(tokens_of(0, 40), 20);
  for (int i = 1; i <= 3; ++i) {  // each saves less, and they are evicted in turn
    insert(tokens_of(100 * i, 12), 12);
    if (slots.num_free() > 0) continue;
    EXPECT_TRUE(cache.evict_state());
  }
  for (int i = 4; i <= 6; ++i) {
    EXPECT_EQ(slots.num_free(), 1);
    insert(tokens_of(100 * i, 12), 12);
    EXPECT_TRUE(cache.evict_state());
  }
  EXPECT_EQ(cache.match_len(0, tokens_of(0, 40)), 0) << "nobody used it";
}

TEST_F(CachedStatesTest, APinnedStateStays) {
  insert(tokens_of(0, 40), 16);
  {
    const PrefixMatch found = match(tokens_of(0, 40));
    EXPECT_EQ(cache.num_evictable_states(), 0);
    EXPECT_FALSE(cache.evict_state());
    EXPECT_EQ(cache.evict(64), 6) << "the pages behind the state";
  }
  EXPECT_TRUE(cache.evict_state());
  EXPECT_EQ(slots.num_free(), 4);
}

TEST_F(CachedStatesTest, StatesGoWithTheirPages) {
  insert(tokens_of(0, 40), 40);
  insert(tokens_of(100, 40), 16);
  EXPECT_EQ(cache.evict(1), 1);
  EXPECT_EQ(cache.num_states(), 1) << "its last page went";
  cache.evict(64);
  EXPECT_EQ(cache.num_states(), 0);
  EXPECT_EQ(slots.num_free(), 4);
  EXPECT_EQ(pages.num_free(), 64);
}

}  // namespace
}  // namespace hocket
