// Tests two ranks whose clocks differ; the tests set how long messages travel.
#include "compute/comm/peer_clock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/mix.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;

// A rank's clock: it shows `epoch` at true time 0 and is fast by `ppm`.
struct Side {
  int64_t epoch = 0;
  double ppm = 0;
  PeerClock peer;
  int64_t at(int64_t true_ns) const {
    return true_ns + epoch + std::llround(static_cast<double>(true_ns) * ppm * 1e-6);
  }
  TimePoint time(int64_t true_ns) const { return TimePoint(Duration(at(true_ns))); }
};

// Sends a message and returns the error of `pushed()` [ns].
int64_t error_of(Side& from, Side& to, int64_t pushed, Duration travel) {
  const int64_t arrived = pushed + travel.count();
  to.peer.heard(to.time(arrived), from.at(pushed), from.peer.min_seen(from.time(pushed)));
  EXPECT_LE(to.peer.pushed(), to.time(arrived));
  return to.peer.pushed().time_since_epoch().count() - to.at(pushed);
}

TEST(PeerClock, FindsThePushWhateverTheEpochs) {
  for (const int64_t epoch : {int64_t{0}, int64_t{-3'000'000'000'000}, int64_t{1} << 60}) {
    Side a, b{.epoch = epoch};
    EXPECT_EQ(error_of(a, b, 1000, 30us), 30'000);  // b has not heard of its own messages yet
    EXPECT_EQ(error_of(b, a, 2000, 30us), 0);
    EXPECT_EQ(error_of(a, b, 3000, 30us), 0);
    EXPECT_EQ(error_of(a, b, 4000, 5ms), 0);  // a slow message changes nothing
    EXPECT_EQ(error_of(b, a, 5000, 7ms), 0);
    // The quickest messages differ by 10 us.
    EXPECT_EQ(error_of(b, a, 6000, 20us), -5000);
    EXPECT_EQ(error_of(a, b, 7000, 30us), 5000);
  }
}

// Large messages one way, small ones the other way, queues on both: the rare quick messages decide.
// Clocks drift by 5 ppm for an hour.
TEST(PeerClock, FollowsClocksThatDriftUnderUnevenLoad) {
  Side a, b{.epoch = -1'000'000'000'000, .ppm = 5};
  uint64_t draw = 7;
  const auto random = [&draw](uint64_t below) {
    return static_cast<int64_t>(mix64(draw += kMixStep) % below);
  };
  int64_t worst = 0;
  for (int64_t ms = 0; ms < 3'600'000; ms += 10) {
    const int64_t now = ms * 1'000'000;
    const bool is_quick = random(50) == 0;
    const Duration there = is_quick ? 20us : Duration(50'000 + random(8'000'000));
    const Duration back = Duration(20'000 + random(400'000));
    const int64_t errors[] = {error_of(a, b, now, there), error_of(b, a, now + 1'000'000, back)};
    if (ms < 2000) continue;
    for (const int64_t error : errors) worst = std::max(worst, std::abs(error));
  }
  EXPECT_LE(worst, 50'000);  // 5 ppm of 10 s
  EXPECT_GT(worst, 1000);
}

// Values of an hour ago are not used.
TEST(PeerClock, ForgetsWhatIsOld) {
  Side a, b{.ppm = 40};
  const int64_t hour = 3'600'000'000'000;
  for (int64_t i = 0; i < 3; ++i) {
    error_of(a, b, i * 1'000'000, 20us);
    error_of(b, a, i * 1'000'000, 20us);
  }
  EXPECT_EQ(a.peer.min_seen(a.time(hour)), PeerClock::kNone);
  EXPECT_NEAR(static_cast<double>(error_of(a, b, hour, 20us)), 20'000, 2);
  EXPECT_NEAR(static_cast<double>(error_of(b, a, hour, 20us)), 0, 2);
  EXPECT_NEAR(static_cast<double>(error_of(a, b, hour + 1000, 20us)), 0, 2);
  // Values of the last one to two windows are kept, also over the border between windows.
  EXPECT_EQ(error_of(a, b, hour + 5'200'000'000, 9ms) / 1'000'000, 0);
  EXPECT_EQ(error_of(a, b, hour + 8'000'000'000, 9ms) / 1'000'000, 0);
}

// A peer may send any values.
TEST(PeerClock, NothingThatAPeerSaysOverflows) {
  using Limits = std::numeric_limits<int64_t>;
  const TimePoint arrived(1s);
  for (const int64_t pushed : {Limits::min(), Limits::max(), int64_t{0}}) {
    for (const int64_t least : {Limits::min() + 1, Limits::max(), PeerClock::kNone}) {
      PeerClock clock;
      clock.heard(arrived, pushed, least);
      EXPECT_LE(clock.pushed(), arrived);
    }
  }
}

}  // namespace
}  // namespace hocket
