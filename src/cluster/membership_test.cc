#include "cluster/membership.h"

#include "cluster/membership_testing.h"

namespace hocket {
namespace {

using testing::HasSubstr;

TEST_F(MembershipTest, TheFirstEpochIsWhenAllAreThere) {
  EXPECT_TRUE(join(1, 10));
  EXPECT_TRUE(join(3, 20));
  EXPECT_EQ(members_.view().epoch, 0u);
  EXPECT_FALSE(members_.view().whole());
  EXPECT_EQ(missing(members_.view()), "rank 2 is not there");
  EXPECT_TRUE(join(2, 30));
  EXPECT_EQ(members_.view().epoch, 1u);
  EXPECT_TRUE(members_.view().whole());
}

TEST_F(MembershipTest, OneRankIsWholeAtOnce) {
  Identity alone = identity(0);
  alone.num_ranks = 1;
  EXPECT_TRUE(Membership(alone, limits_, at(0)).view().whole());
}

TEST_F(MembershipTest, SilenceIsSuspectThenLost) {
  all_join(0);
  live(0, 750, 2);
  EXPECT_FALSE(members_.status(at(750))[2].suspect);
  live(750, 1000, 2);
  EXPECT_TRUE(members_.status(at(1000))[2].suspect);
  live(1000, 2750, 2);
  EXPECT_EQ(members_.view().epoch, 1u);
  live(2750, 3000, 2);
  EXPECT_EQ(members_.view().epoch, 2u);
  EXPECT_EQ(members_.view().lost, 2);
  EXPECT_EQ(members_.view().why, "rank 2 (h2) is silent for 3.0 s");
  EXPECT_EQ(state(2), MemberState::absent);
  EXPECT_FALSE(members_.connected(2));
}

TEST_F(MembershipTest, AnOutageOfTwoSecondsIsSurvived) {
  all_join(0);
  live(0, 2500, 2);
  live(2500, 10'000);
  EXPECT_EQ(members_.view().epoch, 1u);
  EXPECT_FALSE(members_.status(at(10'000))[2].suspect);
}

TEST_F(MembershipTest, AnEndedConnectionIsLostUnlessTheRankIsBackAtOnce) {
  all_join(0);
  members_.cut(1, at(100));
  members_.cut(3, at(100));
  EXPECT_EQ(members_.next_deadline(), at(400));
  EXPECT_TRUE(join(1, 300, "first", true));
  members_.tick(at(399));
  EXPECT_EQ(members_.view().epoch, 1u);
  members_.tick(at(400));
  EXPECT_EQ(members_.view().epoch, 2u);
  EXPECT_EQ(members_.view().why, "rank 3 (h3) ended its connection");
  EXPECT_EQ(state(1), MemberState::member);
}

TEST_F(MembershipTest, ARankThatLostRankZeroIsANewMember) {
  all_join(0);
  EXPECT_TRUE(join(1, 300, "first", false));
  EXPECT_EQ(members_.view().epoch, 3u);  // one for the loss, one for the return
  EXPECT_TRUE(members_.view().whole());
  EXPECT_THAT(members_.view().why, HasSubstr("rank 1 (h1) had lost rank 0"));
}

TEST_F(MembershipTest, ARestartedRankIsANewMember) {
  all_join(0);
  members_.cut(2, at(100));
  EXPECT_TRUE(join(2, 150, "second"));
  EXPECT_EQ(members_.view().epoch, 3u);
  EXPECT_TRUE(members_.view().whole());
  EXPECT_THAT(members_.view().why, HasSubstr("rank 2 (h2) was restarted"));
}

TEST_F(MembershipTest, TwoProcessesCannotBeOneRank) {
  all_join(0);
  const auto second = join(2, 100, "second");
  EXPECT_EQ(second.error().code, ErrorCode::queue_full);  // it may try again
  EXPECT_THAT(second.error().message, HasSubstr("rank 2 (h2) is there already, as process first"));
  EXPECT_FALSE(join(0, 100));
  live(0, 1250, 2);
  EXPECT_TRUE(join(2, 1250, "second")) << "the first is suspect by now";
}

TEST_F(MembershipTest, WhoDisagreesStaysOut) {
  Identity other = identity(1);
  other.version = "2";
  const auto joined = members_.join({.identity = other}, at(0));
  EXPECT_EQ(joined.error().code, ErrorCode::lost_rank);
  EXPECT_EQ(joined.error().message,
            "the version of hocket differs: rank 0 (h0) has 1, rank 1 (h1) has 2");
  EXPECT_EQ(state(1), MemberState::absent);
}

TEST_F(MembershipTest, AStuckEngineIsLostAndBackWhenItsStepIsClosed) {
  all_join(0);
  heartbeats_[2] = {.step = 5, .stage = 3, .state = EngineState::computing, .expected_ms = 2000};
  for (const int rank : {0, 1, 3})  // they wait for rank 2
    heartbeats_[rank] = {.step = 5, .stage = 4, .state = EngineState::waiting, .expected_ms = 2000};
  live(0, 5000);
  EXPECT_EQ(members_.view().epoch, 1u)
      << "slow is not dead: 2 s were expected, and 3 s of patience";
  EXPECT_TRUE(members_.status(at(5000))[2].suspect);
  live(5000, 5250);
  EXPECT_EQ(members_.view().epoch, 2u);
  EXPECT_THAT(
      members_.view().why,
      HasSubstr("rank 2 (h2) makes no progress in step 5, stage 3, 3.0 s longer than it needs"));
  EXPECT_EQ(state(2), MemberState::connected);
  EXPECT_TRUE(members_.connected(2));

  for (Heartbeat& heartbeat : heartbeats_) heartbeat.state = EngineState::closed;
  heartbeats_[2].state = EngineState::computing;
  live(5250, 10'000);
  EXPECT_EQ(state(2), MemberState::connected);
  heartbeats_[2].state = EngineState::closed;
  live(10'000, 10'250);
  EXPECT_EQ(members_.view().epoch, 3u);
  EXPECT_TRUE(members_.view().whole());
}

TEST_F(MembershipTest, NoStepIsExpectedToTakeMoreThanAnHour) {
  all_join(0);
  heartbeats_[2] = {.state = EngineState::computing, .expected_ms = UINT32_MAX};
  constexpr int64_t kHour = 3'600'000;
  live(0, kHour);
  EXPECT_EQ(state(2), MemberState::member);
  live(kHour, kHour + 4000);
  EXPECT_EQ(members_.view().lost, 2);
}

TEST_F(MembershipTest, OfThoseThatComputeTheFurthestBehindIsBlamed) {
  all_join(0);
  for (Heartbeat& heartbeat : heartbeats_)
    heartbeat = {.step = 5, .stage = 4, .state = EngineState::computing};
  heartbeats_[3].stage = 3;
  live(0, 3250);
  EXPECT_EQ(members_.view().lost, 3);
  EXPECT_EQ(state(1), MemberState::member);
}

TEST_F(MembershipTest, CountersThatMoveAreNoSilence) {
  all_join(0);
  for (int64_t ms = 0; ms < 20'000; ms += 1000) {
    heartbeats_[1] = {
        .step = 5, .stage = heartbeats_[1].stage + 1, .state = EngineState::computing};
    live(ms, ms + 1000);
  }
  EXPECT_EQ(members_.view().epoch, 1u);
}

TEST_F(MembershipTest, WhoIsMissedByTheDataPlanePausesLongerEachTime) {
  all_join(0);
  members_.report({.by = 1, .rank = 2, .epoch = 1, .why = "no dispatch of layer 3"}, at(100));
  EXPECT_EQ(members_.view().why, "rank 2 (h2) is missed by rank 1 (h1): no dispatch of layer 3");
  members_.report({.by = 3, .rank = 1, .epoch = 1, .why = "late"}, at(110));  // epoch 1 is over
  EXPECT_EQ(members_.view().epoch, 2u);
  members_.tick(at(1099));
  EXPECT_EQ(members_.view().epoch, 2u);
  members_.tick(at(1100));
  EXPECT_EQ(members_.view().epoch, 3u);
  members_.report({.by = 1, .rank = 2, .epoch = 3, .why = "again"}, at(1200));
  live(1100, 3100);
  EXPECT_EQ(members_.view().epoch, 4u);
  live(3100, 3350);
  EXPECT_EQ(members_.view().epoch, 5u);
}

// A rank that has just come in and reaches no other is at fault itself: the others serve.
TEST_F(MembershipTest, WhoHasJustComeInIsBlamedForALinkToOneThatWasThere) {
  all_join(0);
  live(0, 70'000);
  members_.leave(3, "x");
  EXPECT_TRUE(join(3, 70'000, "second"));
  const uint32_t epoch = members_.view().epoch;
  members_.report({.by = 3, .rank = 1, .epoch = epoch, .why = "no way"}, at(70'100));
  EXPECT_EQ(members_.view().why, "rank 3 (h3) misses rank 1 (h1), which was in before it: no way");
  EXPECT_EQ(state(1), MemberState::member);
  EXPECT_EQ(state(3), MemberState::connected);
  live(70'100, 140'000);  // it is taken back, and in for long
  members_.report({.by = 3, .rank = 1, .epoch = members_.view().epoch, .why = "late"}, at(140'100));
  EXPECT_EQ(members_.view().lost, 1);
}

TEST_F(MembershipTest, GivingUpAStepIsANewEpochOfTheSameMembers) {
  all_join(0);
  members_.report({.by = 3, .rank = -1, .epoch = 1, .why = "a head is damaged"}, at(100));
  EXPECT_EQ(members_.view().epoch, 2u);
  EXPECT_TRUE(members_.view().whole());
  EXPECT_EQ(members_.view().why, "rank 3 (h3) gave up the step: a head is damaged");
}

TEST_F(MembershipTest, ALeavingRankIsLostAtOnce) {
  all_join(0);
  members_.leave(1, "it shuts down");
  EXPECT_EQ(members_.view().epoch, 2u);
  EXPECT_EQ(state(1), MemberState::absent);
  EXPECT_EQ(members_.view().why, "rank 1 (h1) leaves: it shuts down");
}

TEST_F(MembershipTest, EpochsGoOnWhenRankZeroIsNew) {
  for (int rank = 1; rank < kRanks; ++rank)
    ASSERT_TRUE(members_.join({.identity = identity(rank), .last_epoch = 7}, at(0)));
  EXPECT_TRUE(members_.view().whole());
  EXPECT_GT(members_.view().epoch, 7u);
}

TEST_F(MembershipTest, SeveralLostOnesComeBackOneByOne) {
  all_join(0);
  members_.leave(1, "x");
  members_.leave(2, "y");
  EXPECT_EQ(members_.view().epoch, 3u);
  EXPECT_EQ(members_.view().lost, 2);
  EXPECT_TRUE(join(2, 10, "second"));
  EXPECT_EQ(members_.view().lost, 1);
  EXPECT_FALSE(members_.view().whole());
  EXPECT_TRUE(join(1, 20, "second"));
  EXPECT_EQ(members_.view().epoch, 5u);
  EXPECT_EQ(members_.view().lost, -1);
  EXPECT_TRUE(members_.view().whole());
}

TEST_F(MembershipTest, EachMissingRankKeepsItsReason) {
  all_join(0);
  members_.leave(1, "x");
  members_.leave(3, "y");
  EXPECT_EQ(members_.view().why, "rank 3 (h3) leaves: y; rank 1 (h1) leaves: x");
  EXPECT_EQ(missing(members_.view()),
            "rank 1 (h1), rank 3 (h3) are not there: rank 3 (h3) leaves: y; rank 1 (h1) leaves: x");
  EXPECT_TRUE(join(3, 10, "second"));
  EXPECT_EQ(missing(members_.view()), "rank 1 (h1) leaves: x");
  members_.report({.by = 2, .rank = -1, .epoch = members_.view().epoch, .why = "a head is damaged"},
                  at(20));
  EXPECT_EQ(members_.view().why,
            "rank 2 (h2) gave up the step: a head is damaged; rank 1 (h1) leaves: x");
  EXPECT_TRUE(join(1, 30, "second"));
  EXPECT_EQ(missing(members_.view()), "");
}

// The thread sleeps until the deadline: a deadline that stays in the past would keep it awake.
TEST_F(MembershipTest, ADeadlineThatWasServedIsNotInThePast) {
  all_join(0);
  heartbeats_[1].state = EngineState::computing;
  for (int64_t ms = 0; ms < 12'000; ms += 250) {
    live(ms, ms + 250, 2);
    EXPECT_GT(members_.next_deadline(), at(ms + 250)) << ms;
  }
}

RankStatus loading(std::string host, uint64_t loaded, uint64_t to_load) {
  return {.state = MemberState::member,
          .host = std::move(host),
          .heartbeat = {.loaded = loaded, .to_load = to_load}};
}

TEST(LoadingLine, NamesThoseThatAreNotDone) {
  EXPECT_EQ(loading_line({loading("h0", 7, 7), loading("h1", 2, 5), loading("h2", 0, 0), {}}),
            "1 of 4 ranks are loaded; rank 1 (h1) 40 %, rank 2 (h2) 0 %, rank 3 is not there");
  EXPECT_EQ(loading_line({loading("h0", 7, 7), loading("h1", 999, 1000)}),
            "1 of 2 ranks are loaded; rank 1 (h1) 99 %");
  EXPECT_EQ(loading_line({loading("h0", 7, 7), loading("h1", 5, 5)}), "2 of 2 ranks are loaded");
}

TEST(LoadingLine, IsShortForManyRanks) {
  const std::string line = loading_line(std::vector<RankStatus>(128));
  EXPECT_TRUE(line.starts_with("0 of 128 ranks are loaded; rank 0 is not there, rank 1"));
  EXPECT_TRUE(line.ends_with("rank 7 is not there and 120 more"));
}

// The number is everybody's from then on, so one near the end would end all ranks.
TEST_F(MembershipTest, AnEpochThatCannotHaveBeenIsRefused) {
  const auto claims = [](uint32_t epoch) {
    return JoinMessage{.identity = identity(1), .last_epoch = epoch, .heartbeat = {}};
  };
  for (const uint32_t epoch : {kMaxEpoch, kMaxEpoch - kMaxEpochLead + 1}) {
    const auto joined = members_.join(claims(epoch), at(0));
    EXPECT_EQ(joined.error().code, ErrorCode::lost_rank);
    EXPECT_EQ(state(1), MemberState::absent);
  }
  EXPECT_TRUE(members_.join(claims(5), at(0)));  // rank 0 was started again
  ASSERT_EQ(members_.view().epoch, 6u);
  members_.cut(1, at(10));
  EXPECT_FALSE(members_.join(claims(7 + kMaxEpochLead), at(20)));
  EXPECT_TRUE(members_.join(claims(6 + kMaxEpochLead), at(30)));
  members_.tick(at(1000));
  EXPECT_LE(members_.view().epoch, kMaxEpoch);
}

}  // namespace
}  // namespace hocket
