#include "engine/lost_rank_timeout.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

using std::chrono::seconds;

const TimePoint kStart{seconds(1000)};

TEST(LostRankTimeout, RunsFromTheLossAndIsNotBegunAnew) {
  LostRankTimeout wait(seconds(60));
  EXPECT_FALSE(wait.is_over(kStart + seconds(1000)));
  wait.begin(kStart);
  wait.begin(kStart + seconds(50));
  EXPECT_FALSE(wait.is_over(kStart + seconds(59)));
  EXPECT_TRUE(wait.is_over(kStart + seconds(60)));
}

TEST(LostRankTimeout, OnlyTheLongestLoadingProlongsIt) {
  LostRankTimeout wait(seconds(60));
  wait.begin(kStart);
  EXPECT_TRUE(wait.prolong(seconds(5)));
  EXPECT_FALSE(wait.prolong(seconds(5)));
  EXPECT_TRUE(wait.prolong(seconds(7)));
  EXPECT_FALSE(wait.is_over(kStart + seconds(66)));
  EXPECT_TRUE(wait.is_over(kStart + seconds(67)));
}

// A rank that was taken in has lost nothing: it loads, and then the first request comes.
TEST(LostRankTimeout, ARequestThatBeginsItWaitsForTheLoadingUnderWay) {
  LostRankTimeout wait(seconds(60));
  EXPECT_FALSE(wait.prolong(seconds(7))) << "nobody waits yet";
  wait.begin(kStart);
  EXPECT_FALSE(wait.prolong(seconds(7)));
  EXPECT_FALSE(wait.is_over(kStart + seconds(66)));
  EXPECT_TRUE(wait.is_over(kStart + seconds(67)));
  wait.end();
  wait.begin(kStart);
  EXPECT_TRUE(wait.is_over(kStart + seconds(60))) << "the experts are loaded";
}

}  // namespace
}  // namespace hocket
