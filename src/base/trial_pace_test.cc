#include "base/trial_pace.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

// Plays `num` steps as usual.
void play_usual(TrialPace& pace, int num) {
  for (int i = 0; i < num; ++i) pace.note(false);
}

TEST(TrialPace, AFirstTrialWaitsForSomeUsualSteps) {
  TrialPace pace;
  EXPECT_FALSE(pace.may_begin(true));
  play_usual(pace, TrialPace::kGap);
  EXPECT_TRUE(pace.may_begin(true));
  EXPECT_FALSE(pace.may_begin(false));
}

TEST(TrialPace, ATrialHasFourSteps) {
  TrialPace pace;
  play_usual(pace, TrialPace::kGap);
  pace.begin();  // proposes the first
  int num_proposed = 1;
  for (; pace.proposes(); ++num_proposed) pace.propose();
  EXPECT_EQ(num_proposed, 4);
  EXPECT_FALSE(pace.may_begin(true));
  EXPECT_TRUE(pace.is_cold());
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(pace.under_way());
    pace.note(true);
    EXPECT_FALSE(pace.is_cold());
  }
  EXPECT_FALSE(pace.under_way());
  EXPECT_FALSE(pace.may_begin(true));
  play_usual(pace, TrialPace::kGap);
  EXPECT_TRUE(pace.may_begin(true));
}

TEST(TrialPace, ATrialThatIsNotPlayedIsGivenUp) {
  TrialPace pace;
  play_usual(pace, TrialPace::kGap);
  pace.begin();
  play_usual(pace, 7);
  EXPECT_TRUE(pace.under_way());
  pace.note(false);
  EXPECT_FALSE(pace.under_way());
  EXPECT_FALSE(pace.proposes());
}

TEST(TrialPace, AStepThatWasPostponedIsProposedAgain) {
  TrialPace pace;
  play_usual(pace, TrialPace::kGap);
  pace.begin();
  pace.postpone();
  for (int i = 0; i < TrialPace::kSteps; ++i) {
    EXPECT_TRUE(pace.proposes());
    pace.propose();
    pace.note(true);
  }
  EXPECT_FALSE(pace.proposes());
  pace.postpone();  // too late: the trial is over
  EXPECT_FALSE(pace.proposes());
}

TEST(TrialPace, RareTrialsAreOneStepInAHundred) {
  TrialPace pace;
  int num_trials = 0;
  for (int step = 0; step < 10000; ++step) {
    bool is_trial = false;
    if (pace.proposes()) {
      pace.propose();
      is_trial = true;
    } else if (pace.may_begin(false)) {
      pace.begin();
      is_trial = true;
    }
    num_trials += is_trial ? 1 : 0;
    pace.note(is_trial);
  }
  EXPECT_GE(num_trials, 90);
  EXPECT_LE(num_trials, 100);
}

}  // namespace
}  // namespace hocket
