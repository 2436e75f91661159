#include "cluster/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hocket {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Tests use one store and, unless they say otherwise, one requester; times are in ms.
class StoreTest : public testing::Test {
 protected:
  static TimePoint at(int64_t ms) { return TimePoint(milliseconds(ms)); }

  // Returns the reply that came at once.
  StoreReply ask(StoreRequest request, int64_t ms = 0) {
    store_.ask(1, std::move(request), at(ms));
    auto replies = store_.take_replies();
    EXPECT_FALSE(replies.empty());
    return replies.empty() ? StoreReply{} : replies.front().message();
  }
  StoreReply set(const std::string& key, const std::string& value, int64_t lifetime_ms = 0,
                 int64_t now_ms = 0) {
    return ask({.op = StoreOp::set, .key = key, .value = value, .number = lifetime_ms}, now_ms);
  }
  StoreReply get(const std::string& key, int64_t now_ms = 0) {
    return ask({.op = StoreOp::get, .key = key}, now_ms);
  }
  static uint16_t code(ErrorCode c) { return static_cast<uint16_t>(c); }

  Store store_;
};

TEST_F(StoreTest, SetsGetsAndErases) {
  EXPECT_EQ(get("a").code, code(ErrorCode::not_found));
  EXPECT_EQ(set("a", "1").code, 0);
  EXPECT_EQ(get("a").value, "1");
  EXPECT_EQ(ask({.op = StoreOp::erase, .key = "a"}).code, 0);
  EXPECT_EQ(get("a").code, code(ErrorCode::not_found));
}

TEST_F(StoreTest, AddsToWhatIsANumber) {
  EXPECT_EQ(ask({.op = StoreOp::add, .key = "n", .number = 3}).number, 3);
  EXPECT_EQ(ask({.op = StoreOp::add, .key = "n", .number = -5}).number, -2);
  EXPECT_EQ(get("n").value, "-2");
  set("text", "x");
  EXPECT_EQ(ask({.op = StoreOp::add, .key = "text", .number = 1}).code, code(ErrorCode::bad_value));
  set("most", std::to_string(INT64_MAX));
  EXPECT_THAT(ask({.op = StoreOp::add, .key = "most", .number = 1}).value, HasSubstr("overflow"));
}

TEST_F(StoreTest, ALeaseEndsUnlessItIsRenewed) {
  set("a", "1", 100, 0);
  EXPECT_EQ(store_.next_deadline(), at(100));
  EXPECT_EQ(get("a", 99).code, 0);
  set("a", "1", 100, 99);
  EXPECT_EQ(get("a", 198).code, 0);
  EXPECT_EQ(get("a", 199).code, code(ErrorCode::not_found));
  EXPECT_EQ(store_.num_entries(), 0u);
}

TEST_F(StoreTest, AWaitEndsWhenSomebodySetsOrItsTimeIsOver) {
  store_.ask(1, {.id = 7, .op = StoreOp::wait, .key = "a", .number = 100}, at(0));
  store_.ask(2, {.id = 8, .op = StoreOp::wait, .key = "a", .number = 50}, at(0));
  EXPECT_TRUE(store_.take_replies().empty());
  EXPECT_EQ(store_.next_deadline(), at(50));
  store_.expire(at(50));
  auto late = store_.take_replies();
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].requester, 2u);
  EXPECT_EQ(late[0].message().id, 8u);
  EXPECT_EQ(late[0].message().code, code(ErrorCode::timed_out));

  store_.ask(3, {.id = 9, .op = StoreOp::add, .key = "a", .number = 4}, at(60));
  const auto replies = store_.take_replies();
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[0].message().number, 4);
  EXPECT_EQ(replies[1].requester, 1u);
  EXPECT_EQ(replies[1].message().value, "4");
  EXPECT_EQ(store_.next_deadline(), TimePoint::max());
}

TEST_F(StoreTest, AWaitWithoutTimeEndsAtOnce) {
  EXPECT_EQ(ask({.op = StoreOp::wait, .key = "a"}).code, code(ErrorCode::timed_out));
  set("a", "1");
  EXPECT_EQ(ask({.op = StoreOp::wait, .key = "a"}).value, "1");
}

// So a value that many ranks wait for, or ask for at once, is in memory once.
TEST_F(StoreTest, RepliesShareTheirValue) {
  for (uint64_t rank = 1; rank <= 3; ++rank)
    store_.ask(rank, {.op = StoreOp::wait, .key = "a", .number = 100}, at(0));
  store_.ask(4, {.op = StoreOp::set, .key = "a", .value = "1"}, at(0));
  store_.ask(5, {.op = StoreOp::get, .key = "a"}, at(0));
  const auto replies = store_.take_replies();
  ASSERT_EQ(replies.size(), 5u);
  EXPECT_EQ(replies[1].message().value, "1");
  for (size_t i = 2; i < 5; ++i) EXPECT_EQ(replies[i].value, replies[1].value);
}

TEST_F(StoreTest, WhoIsGoneIsForgotten) {
  store_.ask(1, {.op = StoreOp::wait, .key = "a", .number = 100}, at(0));
  store_.forget(1);
  store_.expire(at(1000));
  EXPECT_TRUE(store_.take_replies().empty());
  EXPECT_EQ(store_.next_deadline(), TimePoint::max());
}

TEST_F(StoreTest, HasLimits) {
  for (size_t i = 0; i < Store::kMaxEntries; ++i) ASSERT_EQ(set(std::to_string(i), "").code, 0);
  EXPECT_EQ(set("one more", "").code, code(ErrorCode::queue_full));
  EXPECT_EQ(set("0", "replaced").code, 0);
  for (size_t i = 0; i < Store::kMaxEntries; ++i)
    ask({.op = StoreOp::erase, .key = std::to_string(i)});

  const std::string big(kMaxStoreValueBytes, 'x');
  size_t fitting = 0;
  while (set("big" + std::to_string(fitting), big).code == 0) ++fitting;
  EXPECT_EQ(fitting, Store::kMaxBytes / big.size() - 1);
  ask({.op = StoreOp::erase, .key = "big0"});
  EXPECT_EQ(set("again", big).code, 0);

  for (size_t i = 0; i < Store::kMaxWaits; ++i)
    store_.ask(1, {.op = StoreOp::wait, .key = "w", .number = 100}, at(0));
  EXPECT_TRUE(store_.take_replies().empty());
  EXPECT_EQ(ask({.op = StoreOp::wait, .key = "w", .number = 100}).code,
            code(ErrorCode::queue_full));
  EXPECT_EQ(ask({.op = StoreOp::wait, .key = "w", .number = -1}).code, code(ErrorCode::bad_value));
}

}  // namespace
}  // namespace hocket
