#include "policy/scheduler/sessions.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

constexpr int kSessionPage = 4;

class SessionsTest : public ::testing::Test {
 protected:
  static std::vector<TokenId> tokens_of(int name, int num_pages) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < num_pages * kSessionPage; ++i) tokens.push_back(TokenId{1000 * name + i});
    return tokens;
  }
  void insert(int name, int num_pages) {
    const auto tokens = tokens_of(name, num_pages);
    std::vector<PageId> ids(static_cast<size_t>(num_pages));
    ASSERT_TRUE(pages.take(ids));
    static_cast<void>(cache.insert(0, tokens, ids));
  }
  void keep(int name, int num_pages, int at_s) {
    sessions.keep(key(name), 0, tokens_of(name, num_pages), TimePoint(std::chrono::seconds(at_s)));
  }
  int held(int name, int num_pages = 4) const {
    return cache.num_held_pages(0, tokens_of(name, num_pages));
  }
  static SessionKey key(int name) { return static_cast<uint64_t>(name); }

  PageAllocator pages{32, kSessionPage};
  RadixCache cache{pages, {}};
  Sessions sessions{cache, {.timeout = std::chrono::seconds(10), .most_tokens = 64}};
};

TEST_F(SessionsTest, ASessionIsEvictedBehindAllOthers) {
  insert(1, 4);
  keep(1, 4, 100);
  for (int name = 2; name < 5; ++name) insert(name, 4);  // used later, and by nobody kept
  EXPECT_EQ(cache.evict(12), 12);
  EXPECT_EQ(held(1), 4);
  EXPECT_EQ(held(4), 0);
  EXPECT_EQ(cache.evict(3), 3) << "nothing is pinned";
  EXPECT_EQ(held(1), 1);
  cache.check_integrity();
}

TEST_F(SessionsTest, AnIdleSessionIsLikeOthersAgain) {
  insert(1, 4);
  keep(1, 4, 100);
  insert(2, 4);
  sessions.expire(TimePoint(std::chrono::seconds(109)));
  EXPECT_EQ(sessions.size(), 1);
  sessions.expire(TimePoint(std::chrono::seconds(110)));
  EXPECT_EQ(sessions.size(), 0);
  EXPECT_EQ(sessions.find(key(1)), nullptr);
  EXPECT_EQ(cache.evict(4), 4);
  EXPECT_EQ(held(1), 0);
  EXPECT_EQ(held(2), 4);
}

TEST_F(SessionsTest, TheLongestIdleGoesFirstWhenPagesOfSessionsAreTooMany) {
  for (int name = 1; name <= 5; ++name) {
    insert(name, 4);
    keep(name, 4, 100 + name);
  }
  EXPECT_EQ(sessions.size(), 4);
  EXPECT_EQ(sessions.find(key(1)), nullptr);
  EXPECT_EQ(cache.evict(8), 8);
  EXPECT_EQ(held(1), 0);
  EXPECT_EQ(held(2), 0);
  EXPECT_EQ(held(3), 4);
  keep(6, 17, 200);  // more than all sessions may have
  EXPECT_EQ(sessions.find(key(6)), nullptr);
  EXPECT_EQ(sessions.size(), 4);
}

TEST_F(SessionsTest, ATurnMovesTheEndAndAnEditLeavesTheOldBranch) {
  insert(1, 2);
  keep(1, 2, 100);
  insert(1, 4);
  keep(1, 4, 105);
  sessions.expire(TimePoint(std::chrono::seconds(112)));
  ASSERT_NE(sessions.find(key(1)), nullptr);
  EXPECT_EQ(sessions.find(key(1))->tokens, tokens_of(1, 4));
  // The history is edited behind its first page.
  auto edited = tokens_of(1, 1);
  for (const TokenId token : tokens_of(7, 2)) edited.push_back(token);
  std::vector<PageId> ids(3);
  ASSERT_TRUE(pages.take(ids));
  static_cast<void>(cache.insert(0, edited, ids));
  sessions.keep(key(1), 0, edited, TimePoint(std::chrono::seconds(113)));
  EXPECT_EQ(cache.evict(3), 3);
  EXPECT_EQ(held(1), 1);
  EXPECT_EQ(cache.num_held_pages(0, edited), 3);
  EXPECT_TRUE(sessions.end(key(1)));
  EXPECT_FALSE(sessions.end(key(1)));
  cache.check_integrity();
}

TEST_F(SessionsTest, WithoutATimeOrANameNothingIsKept) {
  insert(1, 4);
  sessions.keep(SessionKey(), 0, tokens_of(1, 4), TimePoint(std::chrono::seconds(1)));
  Sessions none(cache, {.timeout = Duration(0), .most_tokens = 64});
  none.keep(key(1), 0, tokens_of(1, 4), TimePoint(std::chrono::seconds(1)));
  EXPECT_EQ(sessions.size(), 0);
  EXPECT_EQ(none.size(), 0);
}

}  // namespace
}  // namespace hocket
