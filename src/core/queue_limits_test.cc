#include "core/queue_limits.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

constexpr QueueLimit<int64_t, int64_t, int64_t> kTokenLimit{
    "{} tokens wait already; {} more exceed the limit of {}", "ask for less"};
constexpr QueueLimit<int64_t> kTextLimit{"{} texts are under way", "try again later"};

TEST(QueueLimits, AnErrorHasTheNumbersAndARemedy) {
  const Error full = queue_full(kTokenLimit, size_t{900}, 200, 1000u);
  EXPECT_EQ(full.code, ErrorCode::queue_full);
  EXPECT_EQ(full.message, "900 tokens wait already; 200 more exceed the limit of 1000");
  EXPECT_EQ(full.fix, "ask for less");
}

TEST(QueueLimits, AQueueIsFullWhenNotAllFit) {
  const auto refused = [](QueueUse use) {
    return !check_limit(kTextLimit, use, use.max).has_value();
  };
  EXPECT_FALSE(refused({.used = 9, .max = 10}));
  EXPECT_TRUE(refused({.used = 10, .max = 10}));
  EXPECT_TRUE(refused({.used = 11, .max = 10}));
  EXPECT_FALSE(refused({.used = 8, .more = 2, .max = 10}));
  EXPECT_TRUE(refused({.used = 9, .more = 2, .max = 10}));
  EXPECT_TRUE(refused({.max = 0}));
  EXPECT_EQ(check_limit(kTextLimit, {.max = 0}, 0).error().code, ErrorCode::queue_full);
}

TEST(QueueLimits, AnErrorWithoutNumbersIsASentenceToo) {
  EXPECT_EQ(queue_full(QueueLimit<>{"the mailbox is full", ""}).message, "the mailbox is full");
}

}  // namespace
}  // namespace hocket
