// Tests how ranks agree, over a loopback in virtual time, so times are exact.
#include "engine/lockstep/lockstep.h"

#include <gtest/gtest.h>

#include "engine/lockstep/lockstep_testing.h"

namespace hocket {
namespace {

using namespace testing;
using std::chrono::microseconds;
using std::chrono::seconds;

// Runs steps of 1 ms of forward and `rest` of sampling and answering. Returns the time of each from
// the second on.
Duration step_time(Duration rest) {
  Duration took{};
  on_lockstep_ranks(3, [&](LockstepRank& v) {
    TimePoint before;
    for (int step = 1; step <= 6; ++step) {
      ASSERT_TRUE(v.lockstep.finish_agreement(kDecode));
      EXPECT_EQ(v.lockstep.agreed().pass.step, static_cast<uint64_t>(step));
      EXPECT_EQ(v.lockstep.agreed().pass.phase, Phase::decode);
      const TimePoint now = v.end.now();
      if (step > 2 && v.lockstep.rank() == 1) {
        EXPECT_EQ(took, step == 3 ? Duration{} : now - before);
      }
      if (step > 2 && v.lockstep.rank() == 1) took = now - before;
      before = now;
      EXPECT_TRUE(v.lockstep.any_rank_computes(kAnswers));
      v.spend(microseconds(1000));
      v.lockstep.begin_agreement(kDecode);
      v.spend(rest);
    }
    ASSERT_TRUE(v.lockstep.finish_agreement(kDecode));
  });
  return took;
}

TEST(Lockstep, TheAgreementIsHiddenBehindSampling) {
  EXPECT_EQ(step_time(microseconds(500)), microseconds(1500));
  EXPECT_EQ(step_time(microseconds(200)), microseconds(1200));
  EXPECT_EQ(step_time(microseconds(50)), microseconds(1200));  // sampling cannot hide all
}

TEST(Lockstep, NobodyWishesSoNobodyRunsAndAllSleep) {
  on_lockstep_ranks(3, [](LockstepRank& v) {
    const int rank = v.lockstep.rank();
    ASSERT_TRUE(v.lockstep.finish_agreement(rank == 2 ? kDecode : kNothing));
    EXPECT_TRUE(v.lockstep.any_rank_computes(rank == 2 ? kAnswers : kNoRows));
    v.lockstep.begin_agreement(kNothing);
    EXPECT_TRUE(v.lockstep.peer_waiting());  // finish_agreement() is due
    ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
    EXPECT_FALSE(v.lockstep.any_rank_computes(kNoRows));
    EXPECT_EQ(v.lockstep.agreed().pass.step, 2u);
    // After a second of sleep, one of them has work.
    if (rank == 1) {
      v.spend(seconds(1));
      EXPECT_FALSE(v.lockstep.peer_waiting());
      ASSERT_TRUE(v.lockstep.finish_agreement(kPrompt));
    } else {
      v.wait_until_peer_waits();
      ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
    }
    EXPECT_EQ(v.lockstep.agreed().pass.step, 3u);
    EXPECT_EQ(v.lockstep.agreed().pass.phase, Phase::prefill);
    EXPECT_TRUE(v.lockstep.any_rank_computes(kNoRows));
  });
}

// A rank that got work while an agreement found no rows begins another one at once.
TEST(Lockstep, WhoHasNewsAfterAnEmptyAgreementSaysSoAtOnce) {
  on_lockstep_ranks(3, [](LockstepRank& v) {
    const int rank = v.lockstep.rank();
    ASSERT_TRUE(v.lockstep.finish_agreement(kDecode));
    v.lockstep.begin_agreement(kNothing);
    v.spend(microseconds(300));
    ASSERT_TRUE(v.lockstep.finish_agreement(rank == 0 ? kPrompt : kNothing));
    if (rank != 0) {
      EXPECT_FALSE(v.lockstep.any_rank_computes(kNoRows));
      v.wait_until_peer_waits();
      ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
    }
    EXPECT_EQ(v.lockstep.agreed().pass.step, 3u);
    EXPECT_TRUE(v.lockstep.any_rank_computes(kNoRows));
    EXPECT_TRUE(v.lockstep.may_begin());
  });
}

TEST(Lockstep, WhatWasAgreedBinds) {
  on_lockstep_ranks(2, [](LockstepRank& v) {
    const bool first = v.lockstep.rank() == 0;
    ASSERT_TRUE(v.lockstep.finish_agreement(first ? kPrompt : kNothing));
    EXPECT_TRUE(v.lockstep.may_begin());
    // A prompt comes to rank 1 after its vote; that of rank 0 has ended by then.
    v.lockstep.begin_agreement(first ? kDecode : kNothing);
    ASSERT_TRUE(v.lockstep.finish_agreement(first ? kNothing : kPrompt));
    EXPECT_FALSE(v.lockstep.may_begin());
    EXPECT_EQ(v.lockstep.agreed().pass.phase, Phase::decode);
    EXPECT_TRUE(v.lockstep.any_rank_computes(kNoRows));  // played without rows
    v.lockstep.begin_agreement(first ? kNothing : kPrompt);
    ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
    EXPECT_TRUE(v.lockstep.may_begin());  // any rank may begin
    EXPECT_EQ(v.lockstep.agreed().pass.phase, Phase::prefill);
  });
}

// The first pass of the module is exchanged like the step whose rows it has.
TEST(Lockstep, AllPlayThePassesOfTheModuleThatOneNeeds) {
  on_lockstep_ranks(3, [](LockstepRank& v) {
    const int rank = v.lockstep.rank();
    ASSERT_TRUE(v.lockstep.finish_agreement(rank == 0 ? kPrompt : kDecode));
    EXPECT_TRUE(v.lockstep.agreed().module_passes().empty());
    StepProposal next = kDecode;
    next.module_passes = rank;
    v.lockstep.begin_agreement(next);
    ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
    EXPECT_EQ(v.lockstep.agreed().pass.phase, Phase::decode);
    const auto passes = v.lockstep.agreed().module_passes();
    ASSERT_EQ(passes.size(), 2U);
    for (const PassSpec& pass : passes) EXPECT_EQ(pass.step, 2U);
    EXPECT_EQ(passes[0].phase, Phase::prefill);
    EXPECT_EQ(passes[1].phase, Phase::decode);
    EXPECT_NE(passes[0].first_layer, passes[1].first_layer);
    StepProposal nothing;  // nobody has rows, so nobody's rows are guessed on
    nothing.module_passes = 1;
    v.lockstep.begin_agreement(nothing);
    ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
    EXPECT_TRUE(v.lockstep.agreed().module_passes().empty());
  });
}

TEST(LockstepDeathTest, ABatchBeyondWhatWasAgreedIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  LoopbackHub hub(1, {}, LoopbackHub::Time::virtual_time);
  const auto end = hub.join(0);
  LockstepRank v(hub, *end);
  ASSERT_TRUE(v.lockstep.finish_agreement(kDecode));
  EXPECT_DEATH(v.lockstep.any_rank_computes({.mode = ForwardMode::extend, .num_rows = 3}),
               "agreed_.extends");
  ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
  EXPECT_DEATH(v.lockstep.any_rank_computes(kAnswers), "agreed_.computes");
}

TEST(Lockstep, AllStopWhenAllAskTo) {
  on_lockstep_ranks(3, [](LockstepRank& v) {
    const int rank = v.lockstep.rank();
    ASSERT_TRUE(v.lockstep.finish_agreement(kDecode));
    for (int step = 0; step < 4; ++step) {
      if (step == rank) v.lockstep.ask_to_end();
      v.lockstep.begin_agreement(kDecode);
      ASSERT_TRUE(v.lockstep.finish_agreement(kDecode));
      EXPECT_EQ(v.lockstep.agreed().ends, step >= 2) << step;
      for (int other = 0; other < 3; ++other)
        EXPECT_EQ(v.lockstep.loads().of(other).takes_requests, other > step);
      if (v.lockstep.agreed().ends) break;
    }
    EXPECT_TRUE(v.lockstep.any_rank_computes(kAnswers));  // the last step is played
    const TimePoint posted = v.exchange->times(0, MessageKind::agree).posted;
    v.spend(microseconds(10));
    v.lockstep.begin_agreement(kDecode);  // no agreement begins, because no rank would read it
    EXPECT_EQ(v.exchange->times(0, MessageKind::agree).posted, posted);
    EXPECT_EQ(v.own_heartbeat.heartbeat().state, EngineState::closed);
  });
}

TEST(Lockstep, WhoAsksToStopSaysSoThoughNobodyRuns) {
  on_lockstep_ranks(2, [](LockstepRank& v) {
    ASSERT_TRUE(v.lockstep.finish_agreement(kDecode));
    v.lockstep.begin_agreement(kNothing);
    v.lockstep.ask_to_end();
    ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
    EXPECT_TRUE(v.lockstep.agreed().ends);
    EXPECT_EQ(v.lockstep.agreed().pass.step, 3u);
  });
}

TEST(Lockstep, WhoMayNotLeaveTheOthersStopsWhenAllAskTo) {
  on_lockstep_ranks(2, [](LockstepRank& v) {
    Lockstep lockstep(2, {.others_can_serve = false});
    lockstep.rebind(v.end, *v.exchange);
    if (v.end.rank() == 0) lockstep.ask_to_end();
    for (int step = 1; step <= 3; ++step) {
      ASSERT_TRUE(lockstep.finish_agreement(kNothing));
      EXPECT_FALSE(lockstep.agreed().ends) << step;
    }
    if (v.end.rank() == 1) lockstep.ask_to_end();
    ASSERT_TRUE(lockstep.finish_agreement(kNothing));
    EXPECT_TRUE(lockstep.agreed().ends);
  });
}

TEST(Lockstep, LoadsOfAllAreHeard) {
  on_lockstep_ranks(3, [](LockstepRank& v) {
    const auto proposal = [](int rank) {
      return StepProposal{.work = {.num_decoding = 1},
                          .load = {.takes_requests = rank != 1,
                                   .num_requests = 10 + rank,
                                   .num_tokens = (int64_t{1} << 40) + rank}};
    };
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(v.lockstep.loads().of(rank).num_requests, 0);
    ASSERT_TRUE(v.lockstep.finish_agreement(proposal(v.lockstep.rank())));
    for (int rank = 0; rank < 3; ++rank) {
      const RankLoad got = v.lockstep.loads().of(rank);
      EXPECT_EQ(got.takes_requests, rank != 1);
      EXPECT_EQ(got.num_requests, 10 + rank);
      EXPECT_EQ(got.num_tokens, (int64_t{1} << 40) + rank);
    }
  });
}

TEST(Lockstep, PromptsAreDelayedAlikeOnAllRanks) {
  constexpr int kMax = 4;
  const auto body = [](LockstepRank& v) {
    const bool first = v.lockstep.rank() == 0;
    std::vector<bool> begins;
    for (int step = 0; step < 10; ++step) {
      ASSERT_TRUE(v.lockstep.finish_agreement(first ? kPrompt : kDecode));
      EXPECT_TRUE(v.lockstep.any_rank_computes(first ? kNoRows : kAnswers));
      EXPECT_EQ(v.lockstep.agreed().pass.phase,
                v.lockstep.may_begin() ? Phase::prefill : Phase::decode);
      begins.push_back(v.lockstep.may_begin());
    }
    EXPECT_EQ(begins, (std::vector<bool>{0, 0, 0, 0, 1, 0, 0, 0, 0, 1}));
    // A continued chunk makes the step one with prompts, but no other prompt may begin.
    ASSERT_TRUE(v.lockstep.finish_agreement(first ? kDecode : kChunk));
    EXPECT_FALSE(v.lockstep.may_begin());
    EXPECT_EQ(v.lockstep.agreed().pass.phase, Phase::prefill);
  };
  on_lockstep_ranks(2, {}, body, kMax);
}

TEST(Lockstep, TheHeartbeatShowsEachStep) {
  on_lockstep_ranks(2, [](LockstepRank& v) {
    const auto state = [&] { return v.own_heartbeat.heartbeat().state; };
    EXPECT_EQ(state(), EngineState::closed);
    ASSERT_TRUE(v.lockstep.finish_agreement(kDecode));
    EXPECT_EQ(state(), EngineState::computing);
    EXPECT_EQ(v.own_heartbeat.heartbeat().step, 1u);
    EXPECT_EQ(v.own_heartbeat.heartbeat().expected_ms, 30'000u);
    v.spend(microseconds(70'000));
    v.lockstep.begin_agreement(kPrompt);
    ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
    EXPECT_EQ(v.own_heartbeat.heartbeat().expected_ms, 30'000u);  // the first step of its mode
    v.spend(microseconds(400'000));
    v.lockstep.begin_agreement(kDecode);
    ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
    EXPECT_EQ(v.own_heartbeat.heartbeat().step, 3u);
    EXPECT_EQ(v.own_heartbeat.heartbeat().expected_ms, 1'700u);
    v.lockstep.begin_agreement(kNothing);
    ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
    EXPECT_EQ(state(), EngineState::closed);
    v.spend(seconds(9));  // sleep is no step
    ASSERT_TRUE(v.lockstep.finish_agreement(kPrompt));
    EXPECT_EQ(v.own_heartbeat.heartbeat().expected_ms, 5'000u);
    v.lockstep.fail_with(error(ErrorCode::lost_rank, "rank 9 is lost"));
    EXPECT_EQ(state(), EngineState::closed);
  });
}

// A prompt of one row took 100 ms. The time that rows add is bounded, since clients ask for them.
TEST(Lockstep, AStepOfManyRowsMayTakeLonger) {
  on_lockstep_ranks(2, [](LockstepRank& v) {
    const auto prompt_of = [&](int rows) {
      StepProposal proposal = kPrompt;
      if (v.lockstep.rank() == 1) proposal.prompt_step_rows = rows;
      return proposal;
    };
    ASSERT_TRUE(v.lockstep.finish_agreement(prompt_of(1)));
    v.spend(microseconds(100'000));
    for (const auto& [rows, expected_ms] : {std::pair(1, 2'000u), std::pair(20, 21'000u)}) {
      v.lockstep.begin_agreement(prompt_of(rows));
      ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
      EXPECT_EQ(v.lockstep.agreed().rows, rows);
      EXPECT_EQ(v.own_heartbeat.heartbeat().expected_ms, expected_ms) << rows;
      v.spend(microseconds(100'000));
    }
    v.lockstep.note_took(Phase::prefill, 1, microseconds(100'000));
    v.lockstep.set_overlapped(true);
    v.lockstep.begin_agreement(prompt_of(2048));
    ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
    EXPECT_EQ(v.lockstep.agreed().hung_after, seconds(31));
  });
}

// The thread that computes opens the steps then.
TEST(Lockstep, OpensNoStepThatIsComputedElsewhere) {
  on_lockstep_ranks(2, [](LockstepRank& v) {
    v.lockstep.set_overlapped(true);
    ASSERT_TRUE(v.lockstep.finish_agreement(kDecode));
    EXPECT_EQ(v.own_heartbeat.heartbeat().state, EngineState::closed);
    EXPECT_EQ(v.lockstep.agreed().hung_after, seconds(30));
    v.lockstep.note_took(Phase::decode, v.lockstep.agreed().rows, microseconds(70'000));
    EXPECT_EQ(v.lockstep.agreed().hung_after, microseconds(1'700'000));
  });
}

// Rank 0 of three is absent: rank 1 leads, and the delayer does not count rank 0's silence.
TEST(Lockstep, TheLowestRankThatIsPresentLeads) {
  constexpr int kMaxDelayed = 4;
  LoopbackHub hub(3, {}, LoopbackHub::Time::virtual_time);
  on_ranks(hub, 3, [&](Transport& end) {
    if (end.rank() == 0) return;
    RankSet present;
    present.add(1);
    present.add(2);
    LockstepRank v(hub, end, kMaxDelayed, present);
    EXPECT_EQ(v.lockstep.lead(), 1);
    StepProposal says = kPrompt;
    says.overlaps = end.rank() == 1;
    ASSERT_TRUE(v.lockstep.finish_agreement(says));
    EXPECT_TRUE(v.lockstep.agreed().steps_overlap);
    EXPECT_TRUE(v.lockstep.may_begin());
    EXPECT_FALSE(v.lockstep.loads().of(0).takes_requests);
    EXPECT_TRUE(v.lockstep.loads().of(2).takes_requests);
    v.lockstep.ask_to_end();
    ASSERT_TRUE(v.lockstep.finish_agreement(kNothing));
    EXPECT_TRUE(v.lockstep.agreed().ends) << "all who are present ask to stop";
  });
}

TEST(Lockstep, ALostRankIsNamed) {
  LoopbackHub hub(2, {}, LoopbackHub::Time::virtual_time);
  testing::on_ranks(hub, 2, [&](Transport& end) {
    LockstepRank v(hub, end);
    ASSERT_TRUE(v.lockstep.finish_agreement(kDecode));
    if (end.rank() == 1) {
      v.lockstep.begin_agreement(kDecode);
      return v.spend(seconds(5));  // hangs
    }
    v.spend(microseconds(1));
    v.lockstep.begin_agreement(kDecode);
    ASSERT_TRUE(v.lockstep.finish_agreement(kDecode));  // rank 1's vote was there already
    v.lockstep.begin_agreement(kDecode);
    EXPECT_FALSE(v.lockstep.lost());
    EXPECT_FALSE(v.lockstep.finish_agreement(kDecode));
    ASSERT_TRUE(v.lockstep.lost());
    EXPECT_EQ(v.lockstep.lost()->code, ErrorCode::lost_rank);
    EXPECT_NE(v.lockstep.lost()->message.find("rank 1"), std::string::npos);
    EXPECT_EQ(v.lockstep.lost_peer(), 1);
    EXPECT_TRUE(v.lockstep.peer_waiting());
    v.lockstep.begin_agreement(kDecode);
    EXPECT_FALSE(v.lockstep.finish_agreement(kDecode));
    EXPECT_EQ(v.own_heartbeat.heartbeat().state, EngineState::closed);
  });
}

TEST(Lockstep, ARebindStartsFromStepOne) {
  on_lockstep_ranks(2, [](LockstepRank& v) {
    StepProposal planned = kDecode;
    planned.plans.fill({.id = id_of({.order = 3})});
    planned.report.is_valid = 1;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(v.lockstep.finish_agreement(planned));
    EXPECT_NE(v.lockstep.agreed().plan, Plan{});
    v.lockstep.begin_agreement(planned);  // under way when the epoch ends
    v.spend(microseconds(500));
    v.lockstep.fail_with(error(ErrorCode::lost_rank, "rank 1 went away"));
    v.exchange.reset();
    v.exchange =
        *AllToAll::create(v.end, {.max_bytes = on_lanes(1, {0, 0, kAgreementBytes}), .epoch = 2});
    v.lockstep.rebind(v.end, *v.exchange);
    EXPECT_EQ(v.lockstep.agreed().plan, Plan{});  // the plan of the old epoch is gone
    EXPECT_EQ(v.lockstep.reports()[1].is_valid, 0);
    EXPECT_EQ(v.lockstep.expected_rows(Phase::decode, kNothing), 0);
    EXPECT_FALSE(v.lockstep.lost());
    EXPECT_EQ(v.lockstep.lost_peer(), -1);
    v.spend(microseconds(500));
    ASSERT_TRUE(v.lockstep.finish_agreement(kPrompt));
    EXPECT_EQ(v.lockstep.agreed().pass.step, 1u);
    EXPECT_TRUE(v.lockstep.may_begin());
  });
}

TEST(Lockstep, AWordOfAnotherLengthIsRefused) {
  on_lockstep_ranks(2, [](LockstepRank& v) {
    if (v.lockstep.rank() == 1) {
      const std::array<std::byte, 8> vote{};
      const std::array<std::span<const std::byte>, 1> piece = {vote};
      const std::array<AllToAll::Parts, 2> parts = {piece, piece};
      ASSERT_TRUE(v.exchange->start(0, MessageKind::agree, {.step = 1}, parts));
      ASSERT_TRUE(v.exchange->wait(0, MessageKind::agree, {.step = 1}));
      return;
    }
    EXPECT_FALSE(v.lockstep.finish_agreement(kDecode));
    EXPECT_EQ(
        v.lockstep.lost()->message,
        fmt::format("rank 1 sent 8 bytes as its agreement on step 1, not {}", kAgreementBytes));
    EXPECT_EQ(v.lockstep.lost_peer(), 1);
  });
}

}  // namespace
}  // namespace hocket
