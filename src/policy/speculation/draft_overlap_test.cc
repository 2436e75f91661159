#include "policy/speculation/draft_overlap.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

// Plays steps that overlap unless they look, with times of 1,000 us and 900 us. Returns how many
// looked.
int play(DraftOverlap& overlap, int num_steps) {
  int num_looks = 0;
  for (int i = 0; i < num_steps; ++i) {
    const bool looks = overlap.wants_tokens();
    num_looks += looks ? 1 : 0;
    overlap.note_offer(0);
    overlap.factor_of({.num_answers = 1, .us = looks ? 1000.0 : 900.0, .is_pure = true}, !looks,
                      std::nullopt);
  }
  return num_looks;
}

TEST(DraftOverlap, LearnsWhatOverlapSavesFromItsLooks) {
  DraftOverlap overlap(false);
  play(overlap, 100);
  const SpeculationGate::Step step{.num_answers = 1, .us = 1000, .is_pure = true};
  EXPECT_NEAR(overlap.factor_of(step, false, std::nullopt), 0.9, 1e-6);
  EXPECT_EQ(overlap.factor_of(step, true, std::nullopt), 1);
  EXPECT_EQ(overlap.factor_of({.num_answers = 1, .num_drafts = 1, .us = 1, .is_pure = true}, false,
                              std::nullopt),
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
  overlap.note_offer(3);
  for (int i = 0; i < TrialPace::kSteps; ++i) overlap.note_offer(0);
  EXPECT_TRUE(overlap.wants_tokens());
  overlap.note_offer(0);
  EXPECT_FALSE(overlap.wants_tokens());
}

TEST(DraftOverlap, AFixedNumberIsAlwaysPlayed) {
  DraftOverlap overlap(true);
  play(overlap, 20);
  EXPECT_TRUE(overlap.wants_tokens() && overlap.may_draft());
}

}  // namespace
}  // namespace hocket
