// Tests when the gate tries other numbers of drafts, and gates of several ranks, on made-up
// servers.
#include <gtest/gtest.h>

#include <array>
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
  double off_rate() const {
    const int num = ranks_[0].num_answers() + ranks_[1].num_answers();
    return num / machine_.step_us(num, 1024);
  }

 private:
  const DraftMachine machine_;
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
