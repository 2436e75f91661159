// Tests when the gate tries other numbers of drafts, and gates of several ranks, on made-up
// servers.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "policy/speculation/served_drafts_testing.h"

namespace hocket {
namespace {

using testing::DrafterKind;
using testing::DraftMachine;
using testing::DraftRun;
using testing::DraftServer;

const DrafterKind kDrafterKinds[] = {DrafterKind::asked, DrafterKind::free, DrafterKind::ahead};

struct DraftSteps {
  int num_pure = 0, num_with_prompts = 0;
};

DraftSteps draft_steps_of(DraftServer& server, int num_steps) {
  DraftSteps out;
  for (int i = 0; i < num_steps; ++i) {
    const DraftServer::StepResult taken = server.step();
    if (taken.num_drafts > 0) ++(taken.has_prompts ? out.num_with_prompts : out.num_pure);
  }
  return out;
}

// No step with prompts shows what drafts cost, so drafts there would be lost for nothing.
TEST(GateTrials, AreNeverPlayedInStepsWithPrompts) {
  for (const DrafterKind making : kDrafterKinds)
    for (const int decode_only_every : {2, 3, 5, 5000}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(making) << ", " << decode_only_every);
      DraftServer server({.machine = {.fixed_us = 100},
                          .chances = std::vector<double>(4, 0.3),
                          .making = making,
                          .decode_only_every = decode_only_every});
      EXPECT_EQ(draft_steps_of(server, 3000).num_with_prompts, 0);
    }
}

// A trial continues in the next step without prompts, so drafts that gain are found.
TEST(GateTrials, GoOnBehindStepsWithPrompts) {
  for (const DrafterKind making : {DrafterKind::asked, DrafterKind::free}) {
    SCOPED_TRACE(static_cast<int>(making));
    DraftServer server({.machine = {.fixed_us = 5000},
                        .chances = std::vector<double>(4, 0.9),
                        .making = making,
                        .decode_only_every = 2});
    server.rate_of(400);
    const DraftSteps later = draft_steps_of(server, 200);
    EXPECT_GE(later.num_pure, 90);
    EXPECT_EQ(later.num_with_prompts, 100);  // the usual number holds for them, too
  }
}

// Two ranks, which wait for each other: a step takes the time of the rows of both.
class TwoDraftServers {
 public:
  TwoDraftServers(const DraftRun& one, const DraftRun& other)
      : machine_(one.machine), ranks_{DraftServer(one), DraftServer(other)} {}

  // Returns the tokens a microsecond of both in `num` steps.
  double rate_of(int num) {
    double tokens = 0, sum_us = 0;
    for (int i = 0; i < num; ++i) {
      int rows = 0;
      const std::array<int, 2> before = num_drafts_;  // as the ranks' votes tell them
      for (size_t rank = 0; rank < 2; ++rank) {
        const DraftServer::StepResult taken =
            ranks_[rank].begin_step(ranks_[1 - rank].num_answers(), before[1 - rank]);
        tokens += taken.tokens;
        num_drafts_[rank] = taken.num_drafts;
        rows += ranks_[rank].num_answers() + taken.num_drafts;
      }
      const double us = machine_.step_us(rows, 1024);
      sum_us += us;
      for (DraftServer& rank : ranks_) rank.end_step(us);
    }
    return tokens / sum_us;
  }
  void set_chance(double chance) {
    for (DraftServer& rank : ranks_) rank.set_chance(chance);
  }
  void set_machine(const DraftMachine& machine) { machine_ = machine; }
  double off_rate() const { return fixed_rate(0, 0); }
  // The rate if all answers have `num` drafts, each of which holds by this chance.
  double fixed_rate(int num, double chance) const {
    const int answers = ranks_[0].num_answers() + ranks_[1].num_answers();
    double tokens = 0;
    for (int i = 0; i <= num; ++i) tokens += answers * std::pow(chance, i);
    return tokens / machine_.step_us(answers * (1 + num), 1024);
  }
  double best_fixed_rate(double chance) const {
    double best = 0;
    for (int num = 0; num <= kMaxDrafts; ++num) best = std::max(best, fixed_rate(num, chance));
    return best;
  }

 private:
  DraftMachine machine_;
  std::array<DraftServer, 2> ranks_;
  std::array<int, 2> num_drafts_{};  // in the last step
};

// A draft brings one rank 0.3 tokens, for which both wait longer.
TEST(GatesOfRanks, CountTheTimeOfAllRanks) {
  for (const DrafterKind making : {DrafterKind::asked, DrafterKind::free})
    for (const double chance : {0.3, 0.4}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(making) << ", chance " << chance);
      TwoDraftServers ranks({.chances = {chance}, .making = making, .seed = 1},
                            {.chances = {chance}, .making = making, .seed = 5});
      ranks.rate_of(300);
      EXPECT_GE(ranks.rate_of(1000) / ranks.off_rate(), 0.99);
    }
}

TEST(GatesOfRanks, DraftWhereAllRanksGain) {
  const DraftRun run{.machine = {.fixed_us = 5000}, .chances = {0.9}, .making = DrafterKind::free};
  TwoDraftServers ranks(run, run);
  ranks.rate_of(300);
  EXPECT_GE(ranks.rate_of(1000) / ranks.off_rate(), 1.5);
}

// The first drafts of a step cost most, so numbers that pay for all ranks would not pay for one
// alone. Times as in gate_noise_test.
TEST(GatesOfRanks, ReachTheBestNumberOfAll) {
  const DraftMachine machines[] = {
      {.measured_us = {{4, 1000}, {8, 1370}, {12, 1850}, {20, 2420}, {36, 4200}}},
      {.measured_us = {{16, 1000}, {32, 1910}, {48, 1915}, {80, 2303}, {144, 4465}}}};
  for (const DraftMachine& machine : machines)
    for (const double chance : {0.3, 0.6, 0.8, 0.9}) {
      const int num_answers = machine.measured_us[0].first / 2;
      SCOPED_TRACE(::testing::Message() << num_answers << " each, chance " << chance);
      DraftRun run{.machine = machine,
                   .chances = std::vector<double>(static_cast<size_t>(num_answers), chance),
                   .making = DrafterKind::free,
                   .seed = 1};
      DraftRun other = run;
      other.seed = 5;
      TwoDraftServers ranks(run, other);
      ranks.rate_of(200);
      EXPECT_GE(ranks.rate_of(1000) / ranks.best_fixed_rate(chance), 0.94);
    }
}

// One rank's drafts hold and the other's do not, so only one has any.
TEST(GatesOfRanks, LoseNothingIfOnlyOneHasDraftsThatHold) {
  for (const double fixed_us : {100, 1000, 5000}) {
    SCOPED_TRACE(fixed_us);
    const DraftRun run{.machine = {.fixed_us = fixed_us},
                       .chances = {0.9, 0.9},
                       .making = DrafterKind::free,
                       .seed = 1};
    DraftRun other = run;
    other.chances = {0.1, 0.1}, other.seed = 5;
    TwoDraftServers ranks(run, other);
    ranks.rate_of(200);
    EXPECT_GE(ranks.rate_of(1000) / ranks.off_rate(), 0.99);
  }
}

// After a time in which one drafts alone, numbers that pay for all together begin again.
TEST(GatesOfRanks, DraftTogetherAgain) {
  const DraftRun run{.machine = {.fixed_us = 5000}, .chances = {0.9}, .making = DrafterKind::free};
  DraftRun other = run;
  other.chances = {0.1}, other.seed = 5;
  TwoDraftServers ranks(run, other);
  ranks.rate_of(400);
  ranks.set_chance(0.1);
  ranks.rate_of(300);
  ranks.set_chance(0.9);
  ranks.rate_of(400);
  EXPECT_GE(ranks.rate_of(500) / ranks.best_fixed_rate(0.9), 0.9);
}

// A rank whose other ranks ended their answers does not know what drafts their last step had: it
// counts its own step, but not its time.
TEST(GatesOfRanks, AStepOfUnknownDraftsShowsNothing) {
  DraftServer server({.chances = {0.9}, .making = DrafterKind::free});
  for (int i = 0; i < 40; ++i) server.begin_step(1, 0), server.end_step(1000);
  server.begin_step(1, 0);
  const double known_us = server.gate().state().buckets.back().plain_us;
  server.end_step(9000);
  server.begin_step(0, 0), server.end_step(1000);
  const GateState state = server.gate().state();
  EXPECT_EQ(state.totals.num_steps, 42U);
  EXPECT_DOUBLE_EQ(state.buckets.back().plain_us, known_us);
}

// While both draft in every step, only steps in which neither does show that drafts became dearer.
TEST(GatesOfRanks, CeaseWhereDraftsBecomeDearer) {
  for (const DrafterKind making : {DrafterKind::free, DrafterKind::ahead}) {
    SCOPED_TRACE(static_cast<int>(making));
    const DraftMachine cheap{.measured_us = {{2, 1000}, {4, 1200}, {6, 1900}, {18, 6000}}};
    const DraftMachine dear{.measured_us = {{2, 1000}, {4, 2200}, {6, 3300}, {18, 9000}}};
    DraftRun run{.machine = cheap, .chances = {0.8}, .making = making, .seed = 1};
    DraftRun other = run;
    other.seed = 5;
    TwoDraftServers ranks(run, other);
    ranks.rate_of(800);
    EXPECT_GE(ranks.rate_of(100) / ranks.off_rate(), 1.2);
    ranks.set_machine(dear);
    ranks.rate_of(2200);
    EXPECT_GE(ranks.rate_of(500) / ranks.off_rate(), 0.98);
  }
}

// A step is booked under the answers that it had, whatever was offered since.
TEST(SpeculationGateTest, AStepCountsByItsOwnAnswers) {
  DraftServer server({.chances = std::vector<double>(8, 0.5), .making = DrafterKind::free});
  server.rate_of(20);
  SpeculationGate& gate = server.gate();
  gate.offer_nothing({.total_keys = 512});
  for (int i = 0; i < 20; ++i)
    gate.note_step(
        {.num_answers = 1, .num_tokens = 1, .total_keys = 512, .us = 500, .is_decode_only = true});
  const GateState state = gate.state();
  ASSERT_EQ(state.buckets.size(), 2U);
  EXPECT_EQ(state.buckets[0].num_answers, 1);
  EXPECT_EQ(state.buckets[0].num_steps, 20U);
  EXPECT_EQ(state.buckets[1].num_steps, 20U);
}

// If the drafts of both cease to hold, each rank's steps without drafts still take the time of the
// other's, so that drafts would seem to cost nothing.
TEST(GatesOfRanks, CeaseTogetherWhereDraftsCeaseToHold) {
  for (const double chance : {0.1, 0.3}) {
    SCOPED_TRACE(chance);
    TwoDraftServers ranks({.chances = {0.9, 0.9}, .making = DrafterKind::free, .seed = 1},
                          {.chances = {0.9, 0.9}, .making = DrafterKind::free, .seed = 5});
    ranks.rate_of(300);
    ranks.set_chance(chance);
    ranks.rate_of(200);
    EXPECT_GE(ranks.rate_of(500) / ranks.off_rate(), 0.98);
  }
}

// Text of another kind is known after some drafts, also with one answer.
TEST(GateTrials, AcceptanceThatFallsIsKnownSoon) {
  DraftServer server(
      {.machine = {.fixed_us = 5000}, .chances = {0.9}, .making = DrafterKind::free});
  server.rate_of(400);
  server.set_chance(0.1);
  server.rate_of(40);
  EXPECT_GE(server.rate_of(200) / server.fixed_rate(0), 0.97);
}

}  // namespace
}  // namespace hocket
