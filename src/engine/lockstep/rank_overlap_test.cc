// Tests what a rank's overlap concludes from the reports of all ranks.
#include "engine/lockstep/rank_overlap.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/clock_testing.h"
#include "compute/overlap/served_testing.h"
#include "engine/lockstep/lockstep_testing.h"

namespace hocket {
namespace {

using namespace testing;

// The last rank reads more keys a row than all ranks together are taken to read, on the other side
// of a border of buckets: 8 rows of 750 keys.
TEST(RankOverlapTest, PlansInTheBucketThatItLearnsInWhateverKeysRanksRead) {
  const Result<OverlapSettings> settings = choose_overlap({.ep_size = 2});
  ASSERT_TRUE(settings.has_value());
  const FakeClock clock;
  on_lockstep_ranks(2, [&](LockstepRank& v) {
    const int rank = v.lockstep.rank();
    RankOverlap overlap({.rank = rank,
                         .num_ranks = 2,
                         .layers = kServedLayers,
                         .settings = &*settings,
                         .prior = std::make_shared<UninformedPrior>(),
                         .clock = &clock});
    StepReport report{.phase = static_cast<uint8_t>(Phase::decode), .is_valid = 1, .step_us = 900};
    report.rows = rank == 0 ? 8 : 2;
    report.kv_tokens = rank == 0 ? 8 * 300 : 2 * 3000;
    for (int step = 0; step < 5; ++step) {
      StepProposal proposal{.work = {.num_decoding = static_cast<int>(report.rows)}};
      overlap.fill(v.lockstep, proposal);
      if (step > 0) proposal.report = report;
      ASSERT_TRUE(v.lockstep.finish_agreement(proposal));
      overlap.note_reports(v.lockstep);
    }
    if (rank != 0) return;
    const PlannerState state = *overlap.planner_state();
    EXPECT_EQ(state.num_steps, 4u);
    ASSERT_EQ(state.decisions.size(), 1u);
    EXPECT_EQ(state.decisions[0].bucket, border_of({Phase::decode, 8, 6000}));
    EXPECT_EQ(state.decisions[0].num_steps, 4u);
  });
}

// One row of a peer that says it read 2^32 keys, and a step of as many rows as are believed.
TEST(RankOverlapTest, PlansForNoMoreKeysThanItCanCount) {
  const Result<OverlapSettings> settings = choose_overlap({.ep_size = 2});
  ASSERT_TRUE(settings.has_value());
  const FakeClock clock;
  on_lockstep_ranks(2, [&](LockstepRank& v) {
    RankOverlap overlap({.rank = v.lockstep.rank(),
                         .num_ranks = 2,
                         .layers = kServedLayers,
                         .settings = &*settings,
                         .prior = std::make_shared<UninformedPrior>(),
                         .clock = &clock});
    for (int step = 0; step < 3; ++step) {
      StepProposal proposal = kDecode;
      if (v.lockstep.rank() == 1) proposal.prompt_step_rows = std::numeric_limits<int>::max();
      overlap.fill(v.lockstep, proposal);
      proposal.report = {.rows = 1, .kv_tokens = 0xffff'ffff, .is_valid = 1, .step_us = 900};
      ASSERT_TRUE(v.lockstep.finish_agreement(proposal));
      overlap.note_reports(v.lockstep);
    }
    if (v.lockstep.rank() != 0) return;
    const PlannerState state = *overlap.planner_state();
    EXPECT_EQ(state.num_steps, 3u);
    for (const OverlapDecision& decision : state.decisions) {
      EXPECT_GT(decision.bucket.kv_tokens, 0);
      EXPECT_LE(decision.bucket.kv_tokens, int64_t{1} << 39);
    }
  });
}

}  // namespace
}  // namespace hocket
