#include "policy/scheduler/sessions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/log.h"

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
    sessions.protect(key(name), 0, tokens_of(name, num_pages),
                     TimePoint(std::chrono::seconds(at_s)));
  }
  int held(int name, int num_pages = 4) const {
    return cache.num_pages_in_tree(0, tokens_of(name, num_pages));
  }
  static SessionKey key(int name) { return static_cast<uint64_t>(name); }

  PageAllocator pages{32, kSessionPage};
  RadixCache cache{pages, {}};
  Sessions sessions{cache, {.timeout = std::chrono::seconds(10), .max_tokens = 64}};
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
}

TEST_F(SessionsTest, OfASessionThatIsTooLongTheBeginningIsKept) {
  insert(1, 4);
  keep(1, 4, 100);
  insert(2, 20);  // all sessions together may have 16, and one of them 8
  keep(2, 20, 101);
  ASSERT_NE(sessions.find(key(2)), nullptr);
  EXPECT_EQ(sessions.find(key(2))->tokens, tokens_of(2, 20)) << "all of it can be saved";
  EXPECT_NE(sessions.find(key(1)), nullptr) << "one long session does not end the others";
  insert(3, 8);
  EXPECT_EQ(cache.evict(20), 20);
  EXPECT_EQ(held(2, 20), 8);
  EXPECT_EQ(held(1), 4);
  EXPECT_EQ(held(3, 8), 0);
  insert(4, 20);
  keep(4, 20, 102);  // two long ones fit, and nothing beside them
  EXPECT_EQ(sessions.find(key(1)), nullptr);
  EXPECT_NE(sessions.find(key(2)), nullptr);
  EXPECT_EQ(sessions.size(), 2);
  cache.check_integrity();
}

TEST_F(SessionsTest, LongSessionsAreWarnedOfOnce) {
  insert(1, 20);
  log::set_level(log::Level::info);  // other tests of this program hide warnings
  ::testing::internal::CaptureStderr();
  for (int name = 1; name <= 3; ++name)
    for (int turn = 0; turn < 2; ++turn)
      sessions.protect(key(name), 0, tokens_of(1, turn == 0 ? 20 : 4),
                       TimePoint(std::chrono::seconds(100)));
  sessions.protect(key(1), 0, tokens_of(1, 20), TimePoint(std::chrono::seconds(101)));
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
}

TEST_F(SessionsTest, NoTokensLeaveTheSessionAsItIs) {
  insert(1, 4);
  keep(1, 4, 100);
  sessions.protect(key(1), 0, {}, TimePoint(std::chrono::seconds(101)));
  ASSERT_NE(sessions.find(key(1)), nullptr);
  EXPECT_EQ(sessions.find(key(1))->tokens, tokens_of(1, 4));
}

// Sessions 1 to 3 begin with the same two pages, of which 3 alone keeps no more; 1 ends last.
TEST_F(SessionsTest, WhatOthersKeepOfAnEndedSessionStaysKept) {
  const auto shared = tokens_of(9, 2);
  const auto branch = [&](int name) {
    auto tokens = shared;
    for (const TokenId token : tokens_of(name, 2)) tokens.push_back(token);
    return tokens;
  };
  const auto at = [](int s) { return TimePoint(std::chrono::seconds(s)); };
  for (const int name : {1, 2}) {
    std::vector<PageId> ids(4);
    ASSERT_TRUE(pages.take(ids));
    static_cast<void>(cache.insert(0, branch(name), ids));
  }
  sessions.protect(key(3), 0, shared, at(100));
  sessions.protect(key(2), 0, branch(2), at(101));
  sessions.protect(key(1), 0, branch(1), at(102));
  EXPECT_TRUE(sessions.end(key(1)));
  insert(5, 4);  // nobody keeps it, and it was used last
  EXPECT_EQ(cache.evict(6), 6);
  EXPECT_EQ(held(5), 0);
  EXPECT_EQ(cache.num_pages_in_tree(0, branch(2)), 4);
  EXPECT_TRUE(sessions.end(key(2)));
  insert(5, 4);
  EXPECT_EQ(cache.evict(6), 6);
  EXPECT_EQ(cache.num_pages_in_tree(0, shared), 2) << "the third session keeps them";
  EXPECT_TRUE(sessions.end(key(3)));
  insert(5, 4);
  EXPECT_EQ(cache.evict(2), 2);
  EXPECT_EQ(cache.num_pages_in_tree(0, shared), 0);
  cache.check_integrity();
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
  sessions.protect(key(1), 0, edited, TimePoint(std::chrono::seconds(113)));
  EXPECT_EQ(cache.evict(3), 3);
  EXPECT_EQ(held(1), 1);
  EXPECT_EQ(cache.num_pages_in_tree(0, edited), 3);
  EXPECT_TRUE(sessions.end(key(1)));
  EXPECT_FALSE(sessions.end(key(1)));
  cache.check_integrity();
}

TEST_F(SessionsTest, WithoutATimeOrANameNothingIsKept) {
  insert(1, 4);
  sessions.protect(SessionKey(), 0, tokens_of(1, 4), TimePoint(std::chrono::seconds(1)));
  Sessions none(cache, {.timeout = Duration(0), .max_tokens = 64});
  none.protect(key(1), 0, tokens_of(1, 4), TimePoint(std::chrono::seconds(1)));
  EXPECT_EQ(sessions.size(), 0);
  EXPECT_EQ(none.size(), 0);
}

}  // namespace
}  // namespace hocket
