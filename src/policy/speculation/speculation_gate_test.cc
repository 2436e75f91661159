// Tests the gate on made-up servers: how many drafts it chooses, and what that costs.
#include "policy/speculation/speculation_gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/count_allocations_testing.h"
#include "policy/speculation/ngram_drafter.h"
#include "policy/speculation/served_drafts_testing.h"

namespace hocket {
namespace {

using testing::DrafterKind;
using testing::DraftMachine;
using testing::DraftRun;
using testing::DraftServer;

std::vector<double> equal(int num_answers, double chance) {
  return std::vector<double>(static_cast<size_t>(num_answers), chance);
}

// Machines on which rows cost much, little and next to nothing.
std::vector<DraftMachine> machines() {
  return {{.fixed_us = 100}, {}, {.fixed_us = 5000, .expert_us = 20}};
}

// The least and the mean value of some runs that differ by chance.
struct Values {
  double least = 1e9, mean = 0;
};

class EveryServer : public ::testing::TestWithParam<std::tuple<int, int, DrafterKind>> {
 protected:
  static constexpr int kRuns = 4;

  // Plays runs of each server and hands over the values that `measure` finds.
  template <class Measure, class Check>
  void for_each_server(Measure&& measure, Check&& check) const {
    const auto [num_answers, keys, making] = GetParam();
    for (const double chance : {0.0, 0.3, 0.6, 0.8, 0.9})
      for (const DraftMachine& machine : machines()) {
        SCOPED_TRACE(::testing::Message() << "chance " << chance << ", fixed " << machine.fixed_us);
        Values values;
        for (uint32_t seed = 1; seed <= kRuns; ++seed) {
          DraftServer server({.machine = machine,
                              .chances = equal(num_answers, chance),
                              .keys = keys,
                              .making = making,
                              .seed = seed});
          const double value = measure(server);
          values.least = std::min(values.least, value);
          values.mean += value / kRuns;
        }
        check(values);
      }
  }
};

TEST_P(EveryServer, LosesLittleAgainstNoDraftsWhileItLearns) {
  for_each_server([](DraftServer& server) { return server.rate_of(1000) / server.fixed_rate(0); },
                  [](const Values& ratios) {
                    EXPECT_GE(ratios.mean, 0.985);
                    EXPECT_GE(ratios.least, 0.97);
                  });
}

// Steps without drafts, which are played now and then, and trials take a part of the gain.
TEST_P(EveryServer, ComesNearTheBestFixedNumber) {
  for_each_server(
      [](DraftServer& server) {
        server.rate_of(500);
        return server.rate_of(1500) / server.best_fixed_rate();
      },
      [](const Values& ratios) {
        EXPECT_GE(ratios.mean, 0.945);
        EXPECT_GE(ratios.least, 0.9);
      });
}

TEST_P(EveryServer, FindsALargeGainWithin200Steps) {
  for_each_server(
      [](DraftServer& server) {
        if (server.best_fixed_rate() < 1.2 * server.fixed_rate(0)) return 1.1;
        server.rate_of(200);
        return server.rate_of(100) / server.fixed_rate(0);
      },
      [](const Values& ratios) { EXPECT_GE(ratios.least, 1.05); });
}

INSTANTIATE_TEST_SUITE_P(All, EveryServer,
                         ::testing::Combine(::testing::Values(1, 4, 16, 64),
                                            ::testing::Values(512, 8192),
                                            ::testing::Values(DrafterKind::asked, DrafterKind::free,
                                                              DrafterKind::ahead)));

// Plays an answer of 1,000 tokens: a pair of the prompt's with another token behind it, so that the
// first trial has one step and fails, and then the same twelve tokens again and again. Steps take
// 100 us and 20 us for each draft; took() may say otherwise. Returns the number of steps with
// drafts.
template <class Took>
int draft_steps_of_a_loop(Took&& took) {
  SpeculationGate gate({.drafter = std::make_unique<NgramDrafter>(1, NgramDrafter::kSpan)});
  gate.begin(0, 1100);
  std::vector<TokenId> tokens;
  while (tokens.size() < 20) tokens.push_back(TokenId{static_cast<int>(tokens.size())});
  const auto next = [&] {
    const int at = static_cast<int>(tokens.size());
    const bool is_pair = at == 28 || at == 29;
    return TokenId{is_pair ? at - 20 : at < 40 ? 100 + at : 200 + at % 12};
  };
  int num_draft_steps = 0;
  while (tokens.size() < 1020) {
    GateAnswer answer{.seat = 0, .tokens = tokens, .max_drafts = 8};
    const auto keys = static_cast<int64_t>(tokens.size());
    gate.offer({.total_keys = keys, .max_rows = 255}, std::span(&answer, 1));
    const std::vector<TokenId> drafts(answer.drafts.begin(), answer.drafts.end());
    size_t num_accepted = 0;
    while (num_accepted < drafts.size() && drafts[num_accepted] == next()) {
      tokens.push_back(drafts[num_accepted]);
      ++num_accepted;
    }
    tokens.push_back(next());
    const int num_drafts = static_cast<int>(drafts.size());
    num_draft_steps += num_drafts > 0 ? 1 : 0;
    if (num_drafts > 0) gate.note_answer(0, num_drafts, static_cast<int>(num_accepted));
    gate.note_step({.num_answers = 1,
                    .num_drafts = num_drafts,
                    .num_tokens = static_cast<int>(num_accepted) + 1,
                    .total_keys = keys,
                    .us = took(100.0 + 20 * num_drafts, num_draft_steps),
                    .is_decode_only = true});
  }
  return num_draft_steps;
}

TEST(Gate, GoesOnTryingBehindASlowFirstStep) {
  int num_steps = 0;
  EXPECT_GT(draft_steps_of_a_loop([&](double us, int) { return num_steps++ == 0 ? 4000 : us; }),
            20);
}

TEST(Gate, GoesOnTryingBehindATrialThatTheMachineHeldUp) {
  bool was_held_up = false;
  const int num_draft_steps = draft_steps_of_a_loop([&](double us, int so_far) {
    return so_far == 1 && !std::exchange(was_held_up, true) ? 8000 : us;
  });
  EXPECT_TRUE(was_held_up);
  EXPECT_GT(num_draft_steps, 20);
}

TEST(Gate, BeginsWithoutDrafts) {
  DraftServer server({.chances = equal(1, 0.9), .making = DrafterKind::free});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(server.step().num_drafts, 0);
}

TEST(Gate, DraftsForTheRequestsWhoseDraftsHold) {
  std::vector<double> chances = equal(8, 0.05);
  chances.resize(16, 0.95);
  DraftServer server({.machine = {.row_us = 100}, .chances = chances, .making = DrafterKind::free});
  const double off = server.fixed_rate(0), best = server.best_fixed_rate();
  server.rate_of(500);
  EXPECT_GT(server.rate_of(500), 1.05 * std::max(best, off));
}

TEST(Gate, AdaptsWhenDraftsBeginToHold) {
  DraftServer server({.chances = {0.02, 0.02}, .making = DrafterKind::free});
  for (int i = 0; i < 300; ++i) server.step();
  const uint64_t before = server.gate().state().totals.num_draft_steps;
  EXPECT_LT(before, 30U);
  server.set_chance(0.95);
  for (int i = 0; i < 600; ++i) server.step();
  EXPECT_GT(server.gate().state().totals.num_draft_steps - before, 200U);
}

// The gate has used up the trials that need not be rare while drafts seldom held. Other drafters
// than a free one show only in trials, or much later, that drafts are accepted now.
TEST(Gate, FindsALargeGainWithin200StepsOfAChange) {
  for (const int num_answers : {1, 4, 16, 64}) {
    SCOPED_TRACE(::testing::Message() << num_answers << " answers");
    DraftServer server({.machine = {.fixed_us = 5000},
                        .chances = equal(num_answers, 0.3),
                        .making = DrafterKind::free});
    server.rate_of(1000);
    server.set_chance(0.9);
    server.rate_of(200);
    EXPECT_GE(server.rate_of(300) / server.best_fixed_rate(), 0.9);
  }
}

TEST(Gate, AFixedNumberIsKeptAsFarAsThereIsRoom) {
  SpeculationGate gate(
      {.drafter = std::make_unique<testing::ChanceDrafter>(equal(3, 1), DrafterKind::free, 1),
       .num_seats = 3,
       .fixed = 3});
  const std::vector<TokenId> tokens(10);
  std::vector<GateAnswer> answers;
  for (int seat = 0; seat < 3; ++seat) {
    gate.begin(seat, 100);
    answers.push_back({.seat = seat, .tokens = tokens, .max_drafts = seat == 1 ? 2 : 8});
  }
  gate.offer({.total_keys = 30, .max_rows = 7}, answers);
  EXPECT_EQ(answers[0].drafts.size(), 3U);
  EXPECT_EQ(answers[1].drafts.size(), 2U);
  EXPECT_EQ(answers[2].drafts.size(), 2U);
  answers[1].seat = -1;
  gate.offer({.total_keys = 30, .max_rows = 100}, answers);
  EXPECT_EQ(answers[1].drafts.size(), 0U);
  EXPECT_EQ(answers[2].drafts.size(), 3U);
}

TEST(Gate, NeverExceedsTheRoomForRows) {
  DraftServer server({.chances = equal(4, 0.95), .making = DrafterKind::free});
  for (int i = 0; i < 200; ++i) server.step();
  std::vector<TokenId> tokens(9000);
  std::vector<GateAnswer> answers;
  for (int seat = 0; seat < 4; ++seat)
    answers.push_back({.seat = seat, .tokens = tokens, .max_drafts = seat == 2 ? 1 : 8});
  server.gate().offer({.total_keys = 36000, .max_rows = 5}, answers);
  size_t sum = 0;
  for (const GateAnswer& answer : answers) sum += answer.drafts.size();
  EXPECT_LE(sum, 5U);
  EXPECT_LE(answers[2].drafts.size(), 1U);
}

TEST(Gate, TakesNoTimeFromTheWrongSteps) {
  DraftServer server({.chances = equal(1, 0.5)});
  for (int i = 0; i < 100; ++i) server.step();
  const double before = server.gate().state().buckets.at(0).plain_us;
  server.gate().note_step({.num_answers = 1, .num_tokens = 1, .total_keys = 512, .us = 1e9});
  EXPECT_EQ(server.gate().state().buckets.at(0).plain_us, before);
}

int steps_followed(DraftServer& server, int num_steps) {
  int num = 0;
  for (int i = 0; i < num_steps; ++i) num += server.step().follows ? 1 : 0;
  return num;
}

TEST(Gate, ADrafterThatFollowsRestsIfNoDraftPays) {
  DraftServer server({.chances = equal(1, 0.05), .making = DrafterKind::ahead});
  EXPECT_GT(steps_followed(server, 50), 20);  // to learn it
  steps_followed(server, 350);
  EXPECT_EQ(steps_followed(server, 500), 0);
  const int num = steps_followed(server, 3000);  // it is tried again
  EXPECT_GT(num, 20);
  EXPECT_LT(num, 500);
  const GateTotals totals = server.gate().state().totals;
  EXPECT_LT(totals.gained_us, 0);
  EXPECT_EQ(totals.gained_us, totals.trial_us);
}

TEST(Gate, ADrafterThatFollowsGoesOnWhileDraftsPay) {
  DraftServer server(
      {.machine = {.fixed_us = 5000}, .chances = equal(4, 0.9), .making = DrafterKind::ahead});
  steps_followed(server, 200);
  EXPECT_GT(steps_followed(server, 1000), 980);
  EXPECT_GT(server.gate().state().totals.gained_us, 0);
}

// Without the times of later steps without drafts, these would seem to gain what the machine does.
TEST(Gate, AMachineThatBecomesFasterDoesNotMakeDraftsPay) {
  DraftServer server({.chances = equal(1, 0.2), .making = DrafterKind::ahead, .slow_steps = 12});
  steps_followed(server, 300);
  EXPECT_GT(server.rate_of(1000), 0.98 * server.fixed_rate(0));
}

// Returns how near two drafters come to the best fixed number of the better one.
double share_of_best(const DraftRun& both) {
  DraftRun one = both, other = both;
  one.free_chances = other.free_chances = {};
  other.chances = both.free_chances, other.making = DrafterKind::free;
  DraftServer server(both);
  server.rate_of(500);
  return server.rate_of(1500) /
         std::max(DraftServer(one).best_fixed_rate(), DraftServer(other).best_fixed_rate());
}

TEST(GateOfTwoDrafters, ReachesTheBetterOne) {
  for (const int num_answers : {1, 4, 16})
    for (const DraftMachine& machine : machines())
      for (const auto& [by_module, of_text] :
           {std::pair(0.7, 0.1), std::pair(0.3, 0.9), std::pair(0.8, 0.85)}) {
        SCOPED_TRACE(::testing::Message() << num_answers << " answers, fixed " << machine.fixed_us
                                          << ", " << by_module << ", " << of_text);
        EXPECT_GE(share_of_best({.machine = machine,
                                 .chances = equal(num_answers, by_module),
                                 .free_chances = equal(num_answers, of_text),
                                 .making = DrafterKind::ahead}),
                  0.95);
      }
}

TEST(GateOfTwoDrafters, LosesLittleIfDraftsOfNeitherHold) {
  for (const int num_answers : {1, 4, 16})
    for (const DraftMachine& machine : machines()) {
      SCOPED_TRACE(::testing::Message() << num_answers << " answers, fixed " << machine.fixed_us);
      DraftServer server({.machine = machine,
                          .chances = equal(num_answers, 0.1),
                          .free_chances = equal(num_answers, 0.1),
                          .making = DrafterKind::ahead});
      EXPECT_GE(server.rate_of(1500) / server.fixed_rate(0), 0.98);
    }
}

TEST(GateOfTwoDrafters, TakesTheBetterOneForEachAnswer) {
  std::vector<double> by_module = equal(4, 0.1), of_text = equal(4, 0.95);
  by_module.resize(8, 0.95), of_text.resize(8, 0.05);
  EXPECT_GT(share_of_best({.machine = {.fixed_us = 5000},
                           .chances = by_module,
                           .free_chances = of_text,
                           .making = DrafterKind::ahead}),
            1.1);
}

// While text repeats, nothing is made ahead that no step would use.
TEST(GateOfTwoDrafters, TheModuleRestsWhereTextIsBetter) {
  DraftServer server(
      {.chances = equal(1, 0.3), .free_chances = equal(1, 0.95), .making = DrafterKind::ahead});
  steps_followed(server, 400);
  EXPECT_LT(steps_followed(server, 1000), 200);
  EXPECT_GT(server.gate().state().totals.num_draft_steps, 1000U);
}

// Drafts gain a little in steps of answers, but following the prompts costs more than that.
TEST(Gate, StepsWithDraftsHaveToGainWhatFollowingPromptsCosts) {
  const auto draft_steps = [](double prompts_us) {
    DraftServer server(
        {.machine = {.fixed_us = 5000}, .chances = equal(4, 0.5), .making = DrafterKind::ahead});
    uint64_t before = 0;
    for (int i = 0; i < 2000; ++i) {
      if (i == 1000) before = server.gate().state().totals.num_draft_steps;
      server.step();
      if (i % 20 == 0)
        server.gate().note_step({.num_answers = 4,
                                 .num_tokens = 4,
                                 .total_keys = 2048,
                                 .us = 1e6,
                                 .follows = true,
                                 .making_us = prompts_us});
    }
    return server.gate().state().totals.num_draft_steps - before;
  };
  EXPECT_GT(draft_steps(0), 900U);
  EXPECT_LT(draft_steps(1e6), 100U);
}

// Drafts are made for the step after the one that is offered, all of the set number.
TEST(Gate, SaysAheadWhatToMake) {
  SpeculationGate gate(
      {.drafter = std::make_unique<testing::ChanceDrafter>(equal(1, 1), DrafterKind::ahead, 1),
       .fixed = 3});
  EXPECT_TRUE(gate.ahead().follows);
  EXPECT_EQ(gate.ahead().num_drafts, 3);
  SpeculationGate open(
      {.drafter = std::make_unique<testing::ChanceDrafter>(equal(1, 1), DrafterKind::ahead, 1)});
  EXPECT_TRUE(open.ahead().follows);  // the first prompts are followed
  EXPECT_EQ(open.ahead().num_drafts, 0);
  const std::vector<TokenId> tokens(10);
  open.begin(0, 100);
  GateAnswer answer{.seat = 0, .tokens = tokens, .max_drafts = 8};
  open.offer({.total_keys = 10, .max_rows = 8}, std::span(&answer, 1));
  EXPECT_TRUE(answer.drafts.empty());
  EXPECT_FALSE(open.ahead().follows);  // the time without drafts is measured first
}

TEST(Gate, AStepAllocatesNothing) {
  for (const DrafterKind making : {DrafterKind::free, DrafterKind::ahead}) {
    DraftServer server({.chances = equal(16, 0.7), .making = making});
    for (int i = 0; i < 10; ++i) server.step();
    const int64_t before = num_allocations;
    for (int i = 0; i < 400; ++i) server.step();
    EXPECT_EQ(num_allocations, before);
  }
}

}  // namespace
}  // namespace hocket
