// Tests how ranks agree on the plan of a step and on overlapped steps, and how they report the last
// step to each other.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/log.h"
#include "engine/lockstep/lockstep_testing.h"

namespace hocket {
namespace {

using namespace testing;

// Rank 0 proposes one plan for steps with prompts and one for decode, and all play the same.
TEST(LockstepPlans, APlanIsAdoptedByAllAtTheBorderOfAStep) {
  const Plan slow{.order = 1, .parts = 2}, fast{.order = 3, .parts = 4, .share = 30};
  on_lockstep_ranks(3, [&](LockstepRank& v) {
    const auto saying = [&](StepProposal proposal, PlanProposal prompts, PlanProposal answers) {
      // Proposals of other ranks are ignored.
      const PlanProposal other{.id = id_of({.order = 2}), .is_trial = true};
      if (v.lockstep.rank() == 0)
        proposal.plans = {prompts, answers};
      else
        proposal.plans = {other, other};
      return proposal;
    };
    const PlanProposal none, first{.id = id_of(slow)};
    const PlanProposal second{.id = id_of(fast), .is_trial = true};
    EXPECT_EQ(v.lockstep.agreed().plan, Plan{});
    ASSERT_TRUE(v.lockstep.finish_agreement(saying(kDecode, second, none)));
    EXPECT_EQ(v.lockstep.agreed().plan, Plan{});
    EXPECT_EQ(v.lockstep.agreed().pass.parts, 1);
    EXPECT_FALSE(v.lockstep.agreed().is_trial);
    v.lockstep.begin_agreement(saying(kDecode, first, second));
    EXPECT_EQ(v.lockstep.agreed().plan, Plan{});  // until all have heard it
    ASSERT_TRUE(v.lockstep.finish_agreement(saying(kDecode, none, none)));
    EXPECT_EQ(v.lockstep.agreed().plan, fast);
    EXPECT_EQ(v.lockstep.agreed().pass.parts, 4);
    EXPECT_TRUE(v.lockstep.agreed().is_trial);
    // The rank that begins a prompt need not be rank 0.
    const StepProposal mine = v.lockstep.rank() == 2 ? kPrompt : kDecode;
    v.lockstep.begin_agreement(saying(mine, first, second));
    ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
    EXPECT_EQ(v.lockstep.agreed().plan, slow);
    EXPECT_EQ(v.lockstep.agreed().pass.parts, 2);
    EXPECT_FALSE(v.lockstep.agreed().is_trial);
    v.lockstep.begin_agreement(saying(kNothing, first, second));
    ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
    EXPECT_EQ(v.lockstep.agreed().plan, Plan{});  // no rank has rows
    EXPECT_EQ(v.lockstep.num_unknown_plans(), 0u);
  });
}

TEST(LockstepPlans, AnUnknownPlanIsNoneOnAllRanks) {
  log::set_level(log::Level::error);
  on_lockstep_ranks(2, [](LockstepRank& v) {
    StepProposal proposal = kDecode;
    proposal.plans.fill({.id = PlanId{0xffff'ffff}, .is_trial = true});
    for (uint64_t step = 1; step <= 3; ++step) {
      ASSERT_TRUE(v.lockstep.finish_agreement(proposal));
      EXPECT_EQ(v.lockstep.agreed().plan, Plan{});
      EXPECT_FALSE(v.lockstep.agreed().is_trial);
      EXPECT_EQ(v.lockstep.num_unknown_plans(), step);
    }
    ASSERT_TRUE(v.lockstep.finish_agreement(kDecode));
    EXPECT_EQ(v.lockstep.num_unknown_plans(), 3u);
  });
  log::set_level(log::Level::info);
}

TEST(LockstepPlans, ReportsOfAllAreHeardAndTheLargestRankIsForeseen) {
  on_lockstep_ranks(3, [](LockstepRank& v) {
    const int rank = v.lockstep.rank();
    StepProposal proposal = kDecode;
    proposal.work.num_decoding = 10 + rank;
    proposal.num_last_drafts = 5 * rank;
    proposal.prompt_step_rows = rank == 1 ? 512 : 0;
    proposal.report = {.rows = 100U + static_cast<uint32_t>(rank), .is_valid = 1, .step_us = 12.5F};
    ASSERT_TRUE(v.lockstep.finish_agreement(proposal));
    EXPECT_EQ(v.lockstep.agreed().num_other_answers, 10 + 11 + 12 - (10 + rank));
    ASSERT_EQ(v.lockstep.reports().size(), 3u);
    for (int other = 0; other < 3; ++other) {
      const StepReport& got = v.lockstep.reports()[static_cast<size_t>(other)];
      EXPECT_EQ(got.rows, 100U + static_cast<uint32_t>(other));
      EXPECT_EQ(got.step_us, 12.5F);
      EXPECT_EQ(got.is_valid, 1);
    }
    // A rank takes its own rows from `now`, not from its last vote.
    StepProposal now = kDecode;
    now.work.num_decoding = 40 - 20 * rank;
    now.prompt_step_rows = 3;
    EXPECT_EQ(v.lockstep.expected_rows(Phase::decode, now), rank == 0 ? 40 : rank == 1 ? 22 : 16);
    EXPECT_EQ(v.lockstep.expected_rows(Phase::prefill, now), rank == 1 ? 3 : 512);
  });
}

TEST(LockstepPlans, ReportsOfImpossibleSizesAreLeftOut) {
  on_lockstep_ranks(2, [](LockstepRank& v) {
    StepProposal proposal = kDecode;
    proposal.prompt_step_rows = std::numeric_limits<int>::max();
    proposal.report = {.rows = 1U << 24, .is_valid = 1};
    if (v.lockstep.rank() == 1) proposal.report.rows = 0xffff'ffff;
    ASSERT_TRUE(v.lockstep.finish_agreement(proposal));
    EXPECT_EQ(v.lockstep.reports()[0].is_valid, 1);
    EXPECT_EQ(v.lockstep.reports()[1].is_valid, 0);
    EXPECT_EQ(v.lockstep.expected_rows(Phase::prefill, kDecode), 1 << 24);
  });
}

// The last step before a pause is reported with votes that find no rows. Rank 0 has got some since,
// and agrees anew at once.
TEST(LockstepPlans, AReportIsHeardByARankThatAgreesTwiceAtOnce) {
  on_lockstep_ranks(2, [](LockstepRank& v) {
    StepProposal last = kNothing;
    last.report = {.rows = 5, .is_valid = 1};
    v.lockstep.begin_agreement(last);
    const bool has_work = v.lockstep.rank() == 0;
    ASSERT_TRUE(v.lockstep.finish_agreement(has_work ? kDecode : kNothing));
    EXPECT_EQ(v.lockstep.agreed().computes, has_work);
    for (const StepReport& report : v.lockstep.reports()) EXPECT_EQ(report.is_valid, 1);
    if (!has_work) {
      v.wait_until_peer_waits();
      ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
      EXPECT_TRUE(v.lockstep.agreed().computes);
    }
    ASSERT_TRUE(v.lockstep.finish_agreement(kDecode));  // without a report
    for (const StepReport& report : v.lockstep.reports()) EXPECT_EQ(report.is_valid, 0);
  });
}

TEST(LockstepPlans, StepsOverlapIfRank0SaysSo) {
  on_lockstep_ranks(3, [](LockstepRank& v) {
    for (const bool so : {true, false, true}) {
      StepProposal says = kDecode;
      says.overlaps = so == (v.end.rank() == 0);
      ASSERT_TRUE(v.lockstep.finish_agreement(says));
      EXPECT_EQ(v.lockstep.agreed().steps_overlap, so);
    }
    ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));  // without rows nothing changes
    EXPECT_TRUE(v.lockstep.agreed().steps_overlap);
  });
}

TEST(LockstepPlans, NoStepOverlapsIfAnyRankVetoes) {
  on_lockstep_ranks(3, [](LockstepRank& v) {
    for (const int vetoing : {-1, 2, 0, -1, 1}) {
      StepProposal says = kDecode;
      says.overlaps = v.end.rank() == 0;
      says.vetoes_overlap = v.end.rank() == vetoing;
      ASSERT_TRUE(v.lockstep.finish_agreement(says));
      EXPECT_EQ(v.lockstep.agreed().steps_overlap, vetoing == -1);
    }
  });
}

// Any bytes in a vote do no harm: the step still has a plan of the table, and reports are valid
// times or none.
TEST(LockstepPlans, WordsOfAnyBytesDoNoHarm) {
  log::set_level(log::Level::error);
  for (uint32_t seed = 0; seed < 200; ++seed) {
    on_lockstep_ranks(2, [&](LockstepRank& v) {
      if (v.lockstep.rank() == 0) {
        std::mt19937 random(seed);
        std::array<std::byte, kAgreementBytes> vote{};
        for (std::byte& byte : vote) byte = static_cast<std::byte>(random());
        const std::array<std::span<const std::byte>, 1> piece = {vote};
        const std::array<AllToAll::Parts, 2> parts = {piece, piece};
        ASSERT_TRUE(v.exchange->start(0, MessageKind::agree, {.step = 1}, parts));
        ASSERT_TRUE(v.exchange->wait(0, MessageKind::agree, {.step = 1}));
        return;
      }
      ASSERT_TRUE(v.lockstep.finish_agreement(kDecode));
      const Plan plan = v.lockstep.agreed().plan;
      EXPECT_LT(plan.order, OrderTable::builtin().size());
      EXPECT_EQ(plan_of(id_of(plan), OrderTable::builtin()), plan);
      EXPECT_EQ(v.lockstep.agreed().pass.parts, plan.parts);
      const StepReport& got = v.lockstep.reports()[0];
      EXPECT_LT(got.phase, kNumPhases);
      EXPECT_TRUE(std::isfinite(got.step_us) && got.step_us >= 0);
      for (const float time : got.compute_us) EXPECT_TRUE(std::isfinite(time) && time >= 0);
      for (const Phase phase : {Phase::prefill, Phase::decode})
        EXPECT_GE(v.lockstep.expected_rows(phase, kDecode), 0);
      EXPECT_GE(v.lockstep.loads().of(0).num_requests, 0);
    });
  }
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
