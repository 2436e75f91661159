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

TEST(QueueLimits, AnErrorWithoutNumbersIsASentenceToo) {
  EXPECT_EQ(queue_full(queue_limits::kMailbox).message, "the engine's mailbox is full");
}

}  // namespace
}  // namespace hocket
