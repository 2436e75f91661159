#include "engine/balance/retries.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

using std::chrono::seconds;

const TimePoint kBegin{seconds(1000)};

TEST(Retries, TheTimeRunsFromTheFirstFailure) {
  Retries retries(seconds(60));
  EXPECT_EQ(retries.failed(kBegin + seconds(500)), seconds(60));
  EXPECT_EQ(retries.failed(kBegin + seconds(510)), seconds(50));
  EXPECT_EQ(retries.failed(kBegin + seconds(512)), seconds(48));
  EXPECT_EQ(retries.failed(kBegin + seconds(514)), seconds(46));
  EXPECT_EQ(retries.failed(kBegin + seconds(560)), seconds(0));
  EXPECT_EQ(retries.failed(kBegin + seconds(600)), seconds(0));
}

TEST(Retries, SuccessBeginsAnew) {
  Retries retries(seconds(60));
  for (int i = 0; i < 8; ++i) retries.failed(kBegin);
  retries.succeeded();
  EXPECT_EQ(retries.failed(kBegin + seconds(300)), seconds(60));
  EXPECT_EQ(retries.failed(kBegin + seconds(360)), seconds(2));
}

// Also if one try takes longer than all of them should.
TEST(Retries, AreThreeAtLeast) {
  Retries retries(seconds(0));
  EXPECT_EQ(retries.failed(kBegin), seconds(3));
  EXPECT_EQ(retries.failed(kBegin + seconds(100)), seconds(2));
  EXPECT_EQ(retries.failed(kBegin + seconds(200)), seconds(1));
  EXPECT_EQ(retries.failed(kBegin + seconds(300)), seconds(0));
}

}  // namespace
}  // namespace hocket
