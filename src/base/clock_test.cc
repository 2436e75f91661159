#include "base/clock_testing.h"

#include <gtest/gtest.h>

#include <limits>

namespace hocket {
namespace {

using namespace std::chrono_literals;

TEST(Clock, FakeTimeMovesOnlyWhenTold) {
  FakeClock clock;
  const TimePoint start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(1500us);
  EXPECT_EQ(clock.now() - start, 1500us);
  EXPECT_DOUBLE_EQ(to_ms(clock.now() - start), 1.5);
  EXPECT_DOUBLE_EQ(to_us(clock.now() - start), 1500.0);
  EXPECT_DOUBLE_EQ(to_seconds(clock.now() - start), 0.0015);
}

TEST(Clock, RealTimeNeverGoesBack) {
  const RealClock clock;
  TimePoint last = clock.now();
  for (int i = 0; i < 1000; ++i) {
    const TimePoint now = clock.now();
    EXPECT_GE(now, last);
    last = now;
  }
}

TEST(Clock, SecondsGoBothWays) {
  EXPECT_EQ(from_seconds(0.25), 250ms);
}

TEST(Clock, SecondsBeyondAllMeasureAreVeryMany) {
  const Duration most = std::chrono::seconds(1'000'000'000);
  for (const double s : {1e10, 1e308, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(from_seconds(s), most);
    EXPECT_EQ(from_seconds(-s), -most);
    EXPECT_GT(RealClock().now() + 4 * from_seconds(s), RealClock().now());
  }
  EXPECT_EQ(from_seconds(std::numeric_limits<double>::quiet_NaN()), 0ms);
}

}  // namespace
}  // namespace hocket
