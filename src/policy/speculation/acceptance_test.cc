#include "policy/speculation/acceptance.h"

#include <gtest/gtest.h>

#include <random>

namespace hocket {
namespace {

GateState state_of(const Acceptance& acceptance) {
  GateState state;
  acceptance.copy_to(state);
  return state;
}

// Notes `num` runs of four drafts, each of which holds by this chance.
void note_runs(Acceptance& acceptance, int seat, int kind, double chance, int num,
               uint32_t seed = 3) {
  std::mt19937 rng(seed);
  for (int i = 0; i < num; ++i) {
    int accepted = 0;
    while (accepted < 4 && std::bernoulli_distribution(chance)(rng)) ++accepted;
    acceptance.note(seat, kind, 4, accepted);
  }
}

TEST(Acceptance, IsHalfBeforeAnyDraft) {
  const Acceptance acceptance(1);
  for (int i = 0; i < kMaxDrafts; ++i) EXPECT_DOUBLE_EQ(acceptance.of(0, 0, i), 0.5);
  EXPECT_GT(acceptance.doubt(0, 0), 0.3);
}

TEST(Acceptance, ComesFromTheRequestsOwnDrafts) {
  Acceptance acceptance(2);
  for (int i = 0; i < 20; ++i) {
    note_runs(acceptance, 0, 0, 0.9, 10, static_cast<uint32_t>(i));
    note_runs(acceptance, 1, 0, 0.2, 10, static_cast<uint32_t>(100 + i));
  }
  EXPECT_NEAR(acceptance.of(0, 0, 0), 0.9, 0.12);
  EXPECT_NEAR(acceptance.of(1, 0, 0), 0.2, 0.17);
}

TEST(Acceptance, OfANewRequestIsTheGroups) {
  Acceptance acceptance(2);
  note_runs(acceptance, 0, 1, 0.8, 400);
  EXPECT_NEAR(acceptance.of(1, 1, 0), 0.8, 0.05);
  EXPECT_NEAR(acceptance.of(1, 1, 2), 0.8, 0.08);
  EXPECT_DOUBLE_EQ(acceptance.of(1, 0, 0), 0.5);  // another kind
  acceptance.begin(0);
  EXPECT_DOUBLE_EQ(acceptance.of(0, 1, 0), acceptance.of(1, 1, 0));
}

TEST(Acceptance, OfALaterPositionIsGuessedFromTheOneBefore) {
  Acceptance acceptance(1);
  for (int i = 0; i < 100; ++i) acceptance.note(0, 0, 1, 1);
  EXPECT_GT(state_of(acceptance).acceptance[0][1], 0.9);
  EXPECT_GT(acceptance.doubt(0, 1), acceptance.doubt(0, 0));
}

TEST(Acceptance, DraftsBehindAWrongOneSayNothing) {
  Acceptance acceptance(1);
  acceptance.note(0, 0, 4, 1);
  EXPECT_DOUBLE_EQ(state_of(acceptance).num_seen[0][0], 1);
  EXPECT_DOUBLE_EQ(state_of(acceptance).num_seen[0][1], 1);
  EXPECT_DOUBLE_EQ(state_of(acceptance).num_seen[0][2], 0);
}

TEST(Acceptance, DoubtShrinksWithDraftsThatWereSeen) {
  Acceptance acceptance(1);
  double last = 1;
  for (int i = 0; i < 5; ++i) {
    note_runs(acceptance, 0, 0, 0.5, 20, static_cast<uint32_t>(i));
    EXPECT_LT(acceptance.doubt(0, 0), last);
    last = acceptance.doubt(0, 0);
  }
}

}  // namespace
}  // namespace hocket
