#include "engine/overlap_timing.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

using std::chrono::milliseconds;

class OverlapTimingTest : public ::testing::Test {
 protected:
  static TimePoint at(int ms) { return TimePoint{} + milliseconds(ms); }

  // Returns how long to sleep beside a step of `rows`, once a step of four rows has run from
  // `begin` to `end`.
  Duration time_to_sleep(int begin, int end, int rows) {
    Batch batch;
    batch.num_rows = 4;
    Flight finished;
    finished.batch = &batch;
    finished.begin = at(begin);
    finished.end = at(end);
    return timing_.time_to_sleep(finished, rows, at(end));
  }

  OverlapTiming timing_;
};

TEST_F(OverlapTimingTest, SleepsForMostOfTheShorterOfTheLastTwoSteps) {
  EXPECT_EQ(time_to_sleep(0, 40, 4), Duration{});  // one step says little
  EXPECT_EQ(time_to_sleep(40, 140, 4), milliseconds(30));
  EXPECT_EQ(time_to_sleep(140, 160, 8), milliseconds(15));
}

TEST_F(OverlapTimingTest, LeavesTheTimeThatMakingAStepTakes) {
  timing_.begin_turn(at(0));
  timing_.note_launch(at(10));
  static_cast<void>(time_to_sleep(0, 40, 4));
  EXPECT_EQ(time_to_sleep(40, 80, 4), milliseconds(20));
}

TEST_F(OverlapTimingTest, DoesNotSleepBesideFewerRowsNorForAMoment) {
  static_cast<void>(time_to_sleep(0, 40, 4));
  EXPECT_EQ(time_to_sleep(40, 80, 3), Duration{});
  timing_.begin_turn(at(0));
  timing_.note_launch(at(30));
  EXPECT_EQ(time_to_sleep(80, 120, 4), Duration{});
}

TEST_F(OverlapTimingTest, ADeciderBeginsWithoutOverlap) {
  EXPECT_FALSE(timing_.decides());
  timing_.decide(true);
  EXPECT_TRUE(timing_.decides());
  EXPECT_FALSE(timing_.wants_overlap());
  timing_.decide(false);
  EXPECT_FALSE(timing_.decides());
}

// A late commit makes the time to the next one shorter than the passes of the module, which ran
// before it. Windows with overlap must not seem to take no time for that.
TEST_F(OverlapTimingTest, PassesBeforeALateCommitAreNotSubtracted) {
  timing_.decide(true);
  Batch batch;
  batch.num_rows = 4;
  Flight flight;
  flight.batch = &batch;
  int now_ms = 0;
  for (int i = 0; i < 5000; ++i) {
    const bool overlaps = timing_.wants_overlap();
    flight.drafting.took = milliseconds(overlaps ? 20 : 0);
    timing_.note_commit(flight, true, overlaps, at(now_ms += 10));
  }
  EXPECT_FALSE(timing_.wants_overlap());
}

}  // namespace
}  // namespace hocket
