// Tests that calls wait for those that work on the same session or name, and for no others.
#include "engine/busy_sessions.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <thread>
#include <utility>

namespace hocket {
namespace {

constexpr Duration kShort = std::chrono::milliseconds(5), kLong = std::chrono::seconds(20);

TEST(BusySessions, OthersWaitForNone) {
  BusySessions all;
  const auto first = all.begin({1, 10}, kShort), second = all.begin({2, 20}, kShort);
  EXPECT_TRUE(first.has_value());
  EXPECT_TRUE(second.has_value());
}

TEST(BusySessions, ACallThatSharesASessionOrANameWaits) {
  BusySessions all;
  auto first = std::optional(all.begin({1, 10}, kShort));
  ASSERT_TRUE(first->has_value());
  const std::pair<uint64_t, uint64_t> kSharing[] = {{1, 30}, {3, 10}, {10, 30}};
  for (const auto& [session, name] : kSharing) {
    const auto late = all.begin({session, name}, kShort);
    ASSERT_FALSE(late.has_value()) << session << ", " << name;
    EXPECT_EQ(late.error().code, ErrorCode::request_timeout);
    EXPECT_NE(late.error().message.find("or for the name it is saved under"), std::string::npos);
  }
  auto waiting =
      std::async(std::launch::async, [&] { return all.begin({1, 10}, kLong).has_value(); });
  EXPECT_EQ(waiting.wait_for(kShort), std::future_status::timeout);
  first.reset();
  EXPECT_TRUE(waiting.get());
}

TEST(BusySessions, OneCallWaitsAndOthersAreRefusedAtOnce) {
  BusySessions all;
  auto first = std::optional(all.begin({1, 10}, kShort));
  // It is refused itself if it begins while the call below waits.
  auto waiting = std::async(std::launch::async, [&] {
    for (int i = 0; i < 10'000; ++i) {
      const auto call = all.begin({1, 10}, kLong);
      if (call.has_value() || call.error().code != ErrorCode::queue_full) return call.has_value();
      std::this_thread::sleep_for(Duration(1));
    }
    return false;
  });
  // Until the other call waits, one for the session waits itself, and times out.
  ErrorCode code = ErrorCode::request_timeout;
  for (int i = 0; i < 2000 && code == ErrorCode::request_timeout; ++i) {
    code = all.begin({1, 10}, Duration(0)).error().code;
    std::this_thread::sleep_for(kShort);
  }
  EXPECT_EQ(code, ErrorCode::queue_full);
  EXPECT_TRUE(all.begin({2, 20}, kShort).has_value());
  first.reset();
  EXPECT_TRUE(waiting.get());
}

TEST(BusySessions, CallsThatHangLeaveOthersToOtherClients) {
  BusySessions all(2);
  auto first = std::optional(all.begin({1, 1, 7}, kShort));
  const auto second = all.begin({2, 2, 7}, kShort);
  ASSERT_TRUE(first->has_value() && second.has_value());
  EXPECT_EQ(all.begin({3, 3, 7}, kShort).error().code, ErrorCode::queue_full);
  EXPECT_TRUE(all.begin({3, 3, 8}, kShort).has_value());
  first.reset();
  EXPECT_TRUE(all.begin({3, 3, 7}, kShort).has_value());
}

// Else the call that waits would become the third one of its client that works.
TEST(BusySessions, ACallThatWaitsCountsForItsClient) {
  BusySessions all(2);
  auto other = std::optional(all.begin({1, 10, 8}, kShort));
  const auto hangs = all.begin({2, 20, 7}, kShort);
  ASSERT_TRUE(other->has_value() && hangs.has_value());
  // It is refused itself if it begins while a call below lives.
  auto waiting = std::async(std::launch::async, [&] {
    for (int i = 0; i < 10'000; ++i) {
      const auto call = all.begin({1, 11, 7}, kLong);
      if (call.has_value() || call.error().code != ErrorCode::queue_full) return call.has_value();
      std::this_thread::sleep_for(Duration(1));
    }
    return false;
  });
  bool is_refused = false;
  for (int i = 0; i < 2000 && !is_refused; ++i) {
    is_refused = !all.begin({3, 30, 7}, kShort).has_value();
    std::this_thread::sleep_for(kShort);
  }
  EXPECT_TRUE(is_refused);
  other.reset();
  EXPECT_TRUE(waiting.get());
}

TEST(BusySessions, AHoldMayOutliveThem) {
  auto all = std::make_optional<BusySessions>();
  auto hold = std::optional(all->begin({1, 1}, kShort));
  ASSERT_TRUE(hold->has_value());
  all.reset();
  hold.reset();
}

// A session is mostly saved under its own name.
TEST(BusySessions, ASessionMayHaveItsOwnName) {
  BusySessions all;
  {
    ASSERT_TRUE(all.begin({7, 7}, kShort).has_value());
  }
  EXPECT_TRUE(all.begin({7, 7}, kShort).has_value());
}

}  // namespace
}  // namespace hocket
