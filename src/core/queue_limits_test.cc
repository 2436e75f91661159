#include "core/queue_limits.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

TEST(QueueLimits, AnErrorHasTheNumbersAndARemedy) {
  const Error full = queue_full(queue_limits::kTokensOfRank, size_t{900}, 200, 1000u);
  EXPECT_EQ(full.code, ErrorCode::queue_full);
  EXPECT_EQ(full.message, "900 tokens wait already; 200 more exceed the limit of 1000");
  EXPECT_EQ(full.fix, "try again later, or raise --max-queued-tokens");
}

TEST(QueueLimits, AQueueIsFullWhenNotAllFit) {
  const auto refused = [](QueueUse use) {
    return !check_limit(queue_limits::kLiveTexts, use, use.max).has_value();
  };
  EXPECT_FALSE(refused({.used = 9, .max = 10}));
  EXPECT_TRUE(refused({.used = 10, .max = 10}));
  EXPECT_TRUE(refused({.used = 11, .max = 10}));
  EXPECT_FALSE(refused({.used = 8, .more = 2, .max = 10}));
  EXPECT_TRUE(refused({.used = 9, .more = 2, .max = 10}));
  EXPECT_TRUE(refused({.max = 0}));
  EXPECT_EQ(check_limit(queue_limits::kLiveTexts, {.max = 0}, 0).error().code,
            ErrorCode::queue_full);
}

TEST(QueueLimits, AnErrorWithoutNumbersIsASentenceToo) {
  EXPECT_EQ(queue_full(queue_limits::kMailbox).message, "the engine's mailbox is full");
}

}  // namespace
}  // namespace hocket
