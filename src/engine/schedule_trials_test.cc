#include "engine/schedule_trials.h"

#include <gtest/gtest.h>

#include <random>

namespace hocket {
namespace {

using std::chrono::microseconds;

constexpr int kTrialSteps =
    2 * ScheduleTrials::kPairs * (ScheduleTrials::kLeftOut + ScheduleTrials::kWindow);

// Plays steps that take these times until a decision is told, and returns it.
bool decided(ScheduleTrials& trials, double on_us, double off_us, int rows = 16) {
  std::mt19937 random(7);
  for (int i = 0; i < 100'000; ++i) {
    const double noise = 0.9 + 0.2 * static_cast<double>(random() % 1000) / 1000;
    const double us = (trials.overlaps() ? on_us : off_us) * noise;
    trials.note(rows, microseconds(static_cast<int>(us)));
    if (const auto line = trials.take_log_line()) {
      EXPECT_NE(line->find("--overlap-schedule auto"), std::string::npos);
      EXPECT_EQ(line->find("do not overlap") == std::string::npos, trials.overlaps());
      return trials.overlaps();
    }
  }
  ADD_FAILURE() << "nothing was decided";
  return false;
}

TEST(ScheduleTrials, ChooseTheFasterWay) {
  ScheduleTrials pays, costs, equal;
  EXPECT_TRUE(decided(pays, 2900, 3000));
  EXPECT_FALSE(decided(costs, 3060, 3000));
  EXPECT_FALSE(decided(equal, 3000, 3000));
  EXPECT_NEAR(pays.overlapped_share(), 2900.0 / 3000, 0.01);
  EXPECT_EQ(costs.overlapped_share(), 1);
}

TEST(ScheduleTrials, BeginAfterSomeStepsAndAreRare) {
  ScheduleTrials trials;
  int num_on = 0, num_steps = 0;
  for (; num_steps < ScheduleTrials::kStepsBefore; ++num_steps) {
    EXPECT_FALSE(trials.overlaps());
    trials.note(4, microseconds(1000));
  }
  for (; num_steps < ScheduleTrials::kStepsBefore + ScheduleTrials::kStepsBetween; ++num_steps) {
    num_on += trials.overlaps() ? 1 : 0;
    trials.note(4, microseconds(trials.overlaps() ? 1100 : 1000));
  }
  EXPECT_EQ(num_on, kTrialSteps / 2);
}

TEST(ScheduleTrials, FollowAChange) {
  ScheduleTrials trials;
  EXPECT_TRUE(decided(trials, 2900, 3000));
  EXPECT_FALSE(decided(trials, 3100, 3000));
  EXPECT_TRUE(decided(trials, 2900, 3000));
}

TEST(ScheduleTrials, OneDisturbedWindowChangesNothing) {
  ScheduleTrials trials;
  int num_on = 0;
  for (int i = 0; !trials.take_log_line(); ++i) {
    ASSERT_LT(i, 10'000);
    num_on += trials.overlaps() ? 1 : 0;
    const bool disturbed =
        trials.overlaps() && num_on <= ScheduleTrials::kLeftOut + ScheduleTrials::kWindow;
    trials.note(16, microseconds(disturbed ? 30'000 : trials.overlaps() ? 2900 : 3000));
  }
  EXPECT_TRUE(trials.overlaps());
}

// Windows with other numbers of rows are not compared; a trial of such pairs alone decides nothing.
TEST(ScheduleTrials, CompareEqualWorkAlone) {
  ScheduleTrials trials;
  for (int i = 0; i < ScheduleTrials::kStepsBefore + 4 * kTrialSteps; ++i) {
    const bool on = trials.overlaps();
    trials.note(on ? 8 : 16, microseconds(on ? 2000 : 3000));
    EXPECT_FALSE(trials.take_log_line().has_value());
  }
  EXPECT_FALSE(trials.overlaps());
}

}  // namespace
}  // namespace hocket
