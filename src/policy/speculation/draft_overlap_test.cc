#include "policy/speculation/draft_overlap.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

// Plays steps that overlap unless they look, with times of 1,000 us and 900 us. Returns how many
// looked.
int play(DraftOverlap& overlap, int num_steps) {
  int num_looks = 0;
  for (int i = 0; i < num_steps; ++i) {
    const bool looks = overlap.waits_for_commit();
    num_looks += looks ? 1 : 0;
    overlap.note_offer(0, false);
    overlap.factor_of({.num_answers = 1, .us = looks ? 1000.0 : 900.0, .is_decode_only = true},
                      !looks, std::nullopt);
  }
  return num_looks;
}

TEST(DraftOverlap, LearnsWhatOverlapSavesFromItsLooks) {
  DraftOverlap overlap(false);
  play(overlap, 100);
  const SpeculationGate::Step step{.num_answers = 1, .us = 1000, .is_decode_only = true};
  EXPECT_NEAR(overlap.factor_of(step, false, std::nullopt), 0.9, 1e-6);
  EXPECT_EQ(overlap.factor_of(step, true, std::nullopt), 1);
  EXPECT_EQ(overlap.factor_of({.num_answers = 1, .num_drafts = 1, .us = 1, .is_decode_only = true},
                              false, std::nullopt),
            1);
  EXPECT_EQ(overlap.factor_of(step, false, 0.7), 0.7);
}

TEST(DraftOverlap, DraftsBeginOnceThatIsKnown) {
  DraftOverlap overlap(false);
  EXPECT_TRUE(overlap.may_draft());  // nothing says that steps overlap
  play(overlap, 1);
  EXPECT_FALSE(overlap.may_draft());
  play(overlap, kGate.few_looks * kGate.min_look_steps);
  EXPECT_TRUE(overlap.may_draft());
}

TEST(DraftOverlap, LooksAreAsRareAsTheyAreDear) {
  DraftOverlap overlap(false);
  EXPECT_EQ(play(overlap, 40), 40 / kGate.min_look_steps);
  EXPECT_NEAR(play(overlap, 1000), 1000 / 37, 1);
}

// The steps without drafts that a gate plays to measure them do not end drafts for longer.
TEST(DraftOverlap, DraftsGoOnBehindATrialOfNone) {
  DraftOverlap overlap(false);
  overlap.note_offer(3, false);
  for (int i = 0; i < TrialPace::kSteps; ++i) overlap.note_offer(0, false);
  EXPECT_TRUE(overlap.waits_for_commit());
  overlap.note_offer(0, false);
  EXPECT_FALSE(overlap.waits_for_commit());
}

// Drafts that are made ahead, or a trial of them, have to be made behind the step that chose them.
TEST(DraftOverlap, AChoiceAheadIsPlayed) {
  DraftOverlap overlap(false);
  overlap.note_offer(0, false);
  EXPECT_FALSE(overlap.plays_drafts());
  overlap.note_offer(0, true);
  EXPECT_TRUE(overlap.plays_drafts() && overlap.waits_for_commit());
}

// A drafter that follows computes its rows in overlapped steps and in looks.
TEST(DraftOverlap, LearnsWhatOverlapSavesBesideRowsThatFollow) {
  DraftOverlap overlap(false);
  const auto note = [&](bool looks, double making_us) {
    overlap.factor_of({.num_answers = 1,
                       .us = (looks ? 1000.0 : 900.0) + making_us,
                       .is_decode_only = true,
                       .follows = true,
                       .making_us = making_us},
                      !looks, std::nullopt);
  };
  for (int i = 0; i < kGate.few_looks; ++i) note(false, 100), note(true, 150);
  EXPECT_TRUE(overlap.may_draft());
  const SpeculationGate::Step step{.num_answers = 1, .us = 1000, .is_decode_only = true};
  EXPECT_NEAR(overlap.factor_of(step, false, std::nullopt), 0.9, 1e-6);
}

TEST(DraftOverlap, AFixedNumberIsAlwaysPlayed) {
  DraftOverlap overlap(true);
  play(overlap, 20);
  EXPECT_TRUE(overlap.waits_for_commit() && overlap.may_draft());
}

}  // namespace
}  // namespace hocket
