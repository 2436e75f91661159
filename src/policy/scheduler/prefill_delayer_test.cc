#include "policy/scheduler/prefill_delayer.h"

#include <gtest/gtest.h>

#include <vector>

namespace hocket {
namespace {

constexpr PrefillVote kBegins{.begins = true};
constexpr PrefillVote kBoth{.begins = true, .decodes = true};
constexpr PrefillVote kContinues{.continues = true};
constexpr PrefillVote kDecodes{.decodes = true};
constexpr PrefillVote kNothing{};

bool first_verdict(const std::vector<PrefillVote>& votes) {
  return PrefillDelayer(30).allows(votes);
}

TEST(PrefillDelayer, OnlyMixedVotesDelay) {
  EXPECT_TRUE(first_verdict({kBegins, kBoth}));
  EXPECT_TRUE(first_verdict({kBegins, kContinues}));
  EXPECT_TRUE(first_verdict({kDecodes, kNothing}));
  EXPECT_FALSE(first_verdict({kBegins, kDecodes}));
  EXPECT_FALSE(first_verdict({kBoth, kNothing}));  // the rank's own answers would be delayed, too
  EXPECT_FALSE(first_verdict({kContinues, kBegins, kDecodes}));
  // the continued prompt continues in any case
  EXPECT_FALSE(first_verdict({kContinues, kNothing}));
}

TEST(PrefillDelayer, NobodyWaitsForNothing) {
  EXPECT_TRUE(first_verdict({kBegins, kNothing, kNothing}));
}

TEST(PrefillDelayer, ForSoManyPassesInARow) {
  const std::vector<PrefillVote> mixed = {kBegins, kDecodes}, alike = {kBegins, kBegins};
  PrefillDelayer delayer(3);
  for (int round = 0; round < 4; ++round) {
    for (int pass = 0; pass < 3; ++pass) EXPECT_FALSE(delayer.allows(mixed));
    EXPECT_TRUE(delayer.allows(mixed));
  }
  EXPECT_FALSE(delayer.allows(mixed));
  EXPECT_TRUE(delayer.allows(alike));  // this resets the count
  for (int pass = 0; pass < 3; ++pass) EXPECT_FALSE(delayer.allows(mixed));
  EXPECT_TRUE(delayer.allows(mixed));
}

TEST(PrefillDelayer, OffByDefault) {
  const std::vector<PrefillVote> mixed = {kBegins, kDecodes};
  PrefillDelayer delayer;
  for (int pass = 0; pass < 100; ++pass) EXPECT_TRUE(delayer.allows(mixed));
}

}  // namespace
}  // namespace hocket
