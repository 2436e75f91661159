// Tests members of which some may be missing (Membership::Start::tolerate_ranks).
#include "cluster/leave_check.h"
#include "cluster/membership_testing.h"

namespace hocket {
namespace {

// The same ranks, of which one may be missing once all were ready.
class ToleratesTest : public MembershipTest {
 protected:
  explicit ToleratesTest(uint32_t last_epoch = 0, bool began = false)
      : MembershipTest({.last_epoch = last_epoch,
                        .tolerate_ranks = 1,
                        .began = began,
                        .begin_after = std::chrono::seconds(20)}) {}
  Result<void> join_ready(int rank, int64_t ms, bool ready, const std::string& boot = "first") {
    return members_.join(
        {.identity = identity(rank, boot), .heartbeat = {.terms = ready ? "t" : ""}}, at(ms));
  }
  // All join while they load, are ready, and live until `ms`.
  void begin(int64_t ms) {
    all_join(0);
    for (Heartbeat& heartbeat : heartbeats_) heartbeat.terms = "t";
    live(0, ms);
    ASSERT_TRUE(members_.view().began);
    ASSERT_EQ(members_.view().epoch, 1u);
    ASSERT_EQ(members_.view().tolerate_ranks, 1);
  }
  void end_of(int rank, int64_t ms) {
    members_.cut(rank, at(ms));
    members_.tick(at(ms + 300));
  }
};

TEST_F(ToleratesTest, TheStartWaitsForAll) {
  EXPECT_TRUE(join(1, 10));
  EXPECT_TRUE(join(3, 20));
  live(20, 5000, 2);
  EXPECT_EQ(members_.view().epoch, 0u);
  EXPECT_TRUE(join(2, 5010));
  EXPECT_EQ(members_.view().epoch, 1u);
  EXPECT_TRUE(members_.view().serves());
  end_of(3, 5020);  // before all were ready, all are waited for
  EXPECT_FALSE(members_.view().serves());
}

TEST_F(ToleratesTest, TheOthersServeInTheNextEpoch) {
  begin(2000);
  end_of(3, 2000);
  EXPECT_EQ(members_.view().epoch, 2u);
  EXPECT_TRUE(members_.view().serves());
  EXPECT_FALSE(members_.view().whole());
  EXPECT_EQ(members_.view().present().text(), "0,1,2");
  EXPECT_EQ(missing(members_.view()), "rank 3 (h3) ended its connection");
  end_of(1, 2400);
  EXPECT_EQ(members_.view().epoch, 3u);
  EXPECT_FALSE(members_.view().serves()) << "two are missing";
}

TEST_F(ToleratesTest, WhoComesBackLoadsFirst) {
  begin(2000);
  end_of(3, 2000);
  EXPECT_TRUE(join_ready(3, 2400, false, "second"));
  members_.heartbeat(3, {}, at(2500));
  EXPECT_EQ(members_.view().epoch, 2u) << "the others serve on";
  EXPECT_EQ(state(3), MemberState::connected);
  members_.heartbeat(3, {.terms = "t"}, at(2600));
  EXPECT_EQ(members_.view().epoch, 3u);
  EXPECT_TRUE(members_.view().whole());
}

// Rank 3 does not come, and then does.
TEST_F(ToleratesTest, EnoughRanksThatAreReadyForLongBeginWithoutTheOthers) {
  EXPECT_TRUE(join(1, 10));
  EXPECT_TRUE(join(2, 20));
  live(20, 30'000);
  EXPECT_EQ(members_.view().epoch, 0u) << "they load";
  for (Heartbeat& heartbeat : heartbeats_) heartbeat.terms = "t";
  live(30'000, 49'990);
  EXPECT_FALSE(members_.view().serves());
  EXPECT_EQ(missing(members_.view()),
            "rank 3 is not there: 3 ranks are ready, and begin without the others after 20 s");
  live(49'990, 50'500);
  EXPECT_TRUE(members_.view().began);
  EXPECT_EQ(members_.view().epoch, 1u);
  EXPECT_TRUE(members_.view().serves());
  EXPECT_EQ(members_.view().present().text(), "0,1,2");
  EXPECT_EQ(missing(members_.view()),
            "rank 3 is not there: 3 ranks had been ready for 20 s, and began without the others");
  EXPECT_TRUE(join_ready(3, 50'600, false));
  live(50'600, 52'000, 3);
  EXPECT_EQ(members_.view().present().text(), "0,1,2") << "it loads while the others serve";
  members_.heartbeat(3, {.terms = "t"}, at(52'100));
  EXPECT_TRUE(members_.view().whole());
  EXPECT_EQ(members_.view().epoch, 2u);
}

// The time counts again whenever too few are ready.
TEST_F(ToleratesTest, RanksThatComeAndGoDoNotBegin) {
  EXPECT_TRUE(join(1, 10));
  EXPECT_TRUE(join(2, 20));
  for (Heartbeat& heartbeat : heartbeats_) heartbeat.terms = "t";
  live(20, 19'000);
  end_of(2, 19'000);
  EXPECT_TRUE(join_ready(2, 19'400, true, "second"));
  live(19'400, 39'000);
  EXPECT_FALSE(members_.view().began);
  EXPECT_FALSE(members_.view().serves());
  live(39'000, 40'000);
  EXPECT_TRUE(members_.view().serves());
}

// One that is there but loads is not waited for either: it is taken in when it has loaded.
TEST_F(ToleratesTest, OneThatLoadsForLongIsTakenInLater) {
  all_join(0);
  for (Heartbeat& heartbeat : heartbeats_) heartbeat.terms = "t";
  heartbeats_[3].terms.clear();
  live(0, 20'000);
  EXPECT_EQ(members_.view().epoch, 1u);
  EXPECT_FALSE(members_.view().began);
  live(20'000, 20'500);
  EXPECT_TRUE(members_.view().serves());
  EXPECT_EQ(members_.view().present().text(), "0,1,2");
  EXPECT_EQ(state(3), MemberState::connected);
  EXPECT_EQ(members_.view().epoch, 2u);
  heartbeats_[3].terms = "t";
  live(20'500, 20'750);
  EXPECT_TRUE(members_.view().whole());
}

class ToleratesTwoTest : public MembershipTest {
 protected:
  ToleratesTwoTest()
      : MembershipTest({.tolerate_ranks = 2, .begin_after = std::chrono::seconds(20)}) {}
};

TEST_F(ToleratesTwoTest, TheReasonOfTheWaitCountsTheRanksThatAreReady) {
  for (Heartbeat& heartbeat : heartbeats_) heartbeat.terms = "t";
  EXPECT_TRUE(join(1, 10));
  live(10, 1000);
  EXPECT_THAT(members_.view().why, testing::StartsWith("2 ranks are ready, and begin without"));
  EXPECT_TRUE(join(2, 1000));
  uint64_t version = members_.version();
  live(1000, 2000);
  EXPECT_THAT(members_.view().why, testing::StartsWith("3 ranks are ready, and begin without"));
  EXPECT_GT(members_.version(), version) << "the view is sent";
  members_.leave(1, "x");
  members_.leave(2, "y");
  version = members_.version();
  live(2000, 3000);
  EXPECT_EQ(members_.view().why, "") << "rank 0 alone is ready";
  EXPECT_GT(members_.version(), version);
}

TEST_F(MembershipTest, WithoutToleranceTheStartWaitsForAll) {
  EXPECT_TRUE(join(1, 10));
  EXPECT_TRUE(join(2, 20));
  for (Heartbeat& heartbeat : heartbeats_) heartbeat.terms = "t";
  live(20, 200'000);
  EXPECT_EQ(members_.view().epoch, 0u);
}

class TakesOverTest : public ToleratesTest {
 protected:
  TakesOverTest() : ToleratesTest(7, true) {}
};

// It had begun without rank 3, but etcd took no epoch of its.
class TakesOverBeforeTheFirstEpochTest : public ToleratesTest {
 protected:
  TakesOverBeforeTheFirstEpochTest() : ToleratesTest(0, true) {}
};

TEST_F(TakesOverBeforeTheFirstEpochTest, EnoughRanksServe) {
  EXPECT_TRUE(join_ready(1, 10, true));
  EXPECT_TRUE(join_ready(2, 20, true));
  members_.heartbeat(0, {.terms = "t"}, at(30));
  members_.tick(at(1000));
  EXPECT_TRUE(members_.view().serves());
  EXPECT_EQ(members_.view().present().text(), "0,1,2");
}

// The rank that tells of the begin loads, and is not let in itself.
TEST_F(ToleratesTest, EnoughRanksServeOnTheWordOfOneThatLoads) {
  EXPECT_TRUE(join_ready(1, 10, true));
  EXPECT_TRUE(join_ready(2, 20, true));
  members_.heartbeat(0, {.terms = "t"}, at(30));
  EXPECT_EQ(members_.view().epoch, 0u);
  EXPECT_TRUE(members_.join({.identity = identity(3), .began = true, .heartbeat = {}}, at(40)));
  members_.tick(at(1000));
  EXPECT_TRUE(members_.view().serves());
  EXPECT_EQ(members_.view().present().text(), "0,1,2");
}

// A new coordinator knows of no rank at first; all dial it within a moment.
TEST_F(TakesOverTest, ACoordinatorGathersTheRanks) {
  EXPECT_EQ(state(0), MemberState::connected) << "it may be loading";
  members_.heartbeat(0, {.terms = "t"}, at(10));
  EXPECT_EQ(state(0), MemberState::member);
  EXPECT_TRUE(join_ready(1, 20, true));
  EXPECT_TRUE(join_ready(2, 30, true));
  EXPECT_FALSE(members_.view().serves());
  EXPECT_EQ(members_.next_deadline(), at(1000));
  members_.tick(at(1000));
  EXPECT_TRUE(members_.view().serves());
  EXPECT_EQ(members_.view().present().text(), "0,1,2");
  EXPECT_GT(members_.next_deadline(), at(1000));
}

TEST_F(ToleratesTest, OneThatWasInTheServiceSaysThatItBegan) {
  JoinMessage resumed{.identity = identity(1), .last_epoch = 5, .began = true, .heartbeat = {}};
  resumed.heartbeat.terms = "t";
  EXPECT_TRUE(members_.join(resumed, at(10)));
  EXPECT_TRUE(join_ready(2, 20, true));
  for (Heartbeat& heartbeat : heartbeats_) heartbeat.terms = "t";
  live(20, 1100);
  EXPECT_TRUE(members_.view().serves()) << "rank 0 alone was restarted";
}

TEST(OtherTerms, NamesTheNumbersThatDiffer) {
  const Error why = other_terms({.rank = 0}, "64 rows; 20 places; 4 orders", {.rank = 1},
                                "64 rows; 120 places; 4 orders");
  EXPECT_EQ(why.message,
            "the ranks' messages would differ: rank 0 has 20 places, rank 1 has 120 places");
  EXPECT_NE(why.fix.find("--ep-num-redundant-experts"), std::string::npos);
}

// One that was started with other flags is refused before it disturbs the others.
TEST_F(ToleratesTest, WhoComesBackWithOtherTermsIsRefused) {
  begin(2000);
  end_of(3, 2000);
  EXPECT_TRUE(join_ready(3, 2400, false, "second"));
  const auto taken = members_.heartbeat(3, {.terms = "other"}, at(2500));
  EXPECT_EQ(taken.error().code, ErrorCode::lost_rank);
  EXPECT_EQ(taken.error().message,
            "the ranks' messages would differ: rank 0 (h0) has t, rank 3 (h3) has other");
  members_.tick(at(2500));
  EXPECT_EQ(members_.view().epoch, 2u);
  EXPECT_EQ(state(3), MemberState::connected);
  const auto joined =
      members_.join({.identity = identity(3, "third"), .heartbeat = {.terms = "other"}}, at(6000));
  EXPECT_EQ(joined.error().code, ErrorCode::lost_rank);
  const auto strange = members_.heartbeat(3, {.terms = "a\nb"}, at(6000));
  EXPECT_EQ(strange.error().code, ErrorCode::bad_value);
}

// Its number says nothing about the epoch in which the others serve, until it is in one itself.
TEST_F(ToleratesTest, WhoLoadsDoesNotChangeTheEpochOfTheOthers) {
  begin(2000);
  end_of(3, 2000);
  ASSERT_EQ(members_.view().epoch, 2u);
  JoinMessage known{.identity = identity(3, "second"), .last_epoch = 9, .heartbeat = {}};
  EXPECT_TRUE(members_.join(known, at(2400)));
  EXPECT_EQ(members_.view().epoch, 2u);
  EXPECT_EQ(members_.view().present().text(), "0,1,2");
  members_.heartbeat(3, {.terms = "t"}, at(2600));
  EXPECT_EQ(members_.view().epoch, 10u);
}

// A coordinator that was started again loads, and learns from the others that the service began.
TEST_F(ToleratesTest, TheOthersServeWhileANewCoordinatorLoads) {
  for (const int rank : {1, 2, 3})
    EXPECT_TRUE(members_.join(
        {.identity = identity(rank), .last_epoch = 5, .began = true, .heartbeat = {.terms = "t"}},
        at(10)));
  members_.tick(at(1100));
  EXPECT_TRUE(members_.view().serves());
  EXPECT_EQ(members_.view().present().text(), "1,2,3");
  members_.heartbeat(0, {.terms = "t"}, at(1200));
  EXPECT_TRUE(members_.view().whole());
}

// Rank 0 may serve alone after a cut that the others do not know of yet, so they must be more than
// those that may be missing.
TEST(AreEnough, TwoSetsThatMayServeHaveARankInCommon) {
  for (int num_ranks = 1; num_ranks <= 7; ++num_ranks)
    for (int tolerated = 0; tolerated < num_ranks; ++tolerated) {
      std::vector<RankSet> sets;
      for (unsigned bits = 0; bits < 1u << num_ranks; ++bits) {
        RankSet set;
        for (int rank = 0; rank < num_ranks; ++rank)
          if ((bits >> rank & 1) != 0) set.add(rank);
        if (are_enough(set, num_ranks, tolerated, 0)) sets.push_back(set);
      }
      for (const RankSet& one : sets)
        for (const RankSet& other : sets)
          ASSERT_LT(one.without(other).size(), one.size())
              << one.text() << " and " << other.text() << " of " << num_ranks;
      EXPECT_TRUE(are_enough(RankSet::all(num_ranks), num_ranks, tolerated, 0));
    }
}

TEST(AreEnough, AnyRankMayCoordinateMoreThanHalf) {
  RankSet three;
  for (const int rank : {1, 2, 4}) three.add(rank);
  for (int coordinator = 0; coordinator < 5; ++coordinator)
    EXPECT_TRUE(are_enough(three, 5, 2, coordinator));
  EXPECT_FALSE(are_enough(three, 5, 1, 1));
  EXPECT_FALSE(are_enough(three, 5, 3, 0));
  EXPECT_TRUE(are_enough(three, 5, 3, 1));
}

// A rank that drains is still there, but the others must be enough without it.
TEST_F(ToleratesTest, RanksThatLeaveDoNotCountAsStaying) {
  begin(2000);
  const auto set_of = [](int rank) {
    RankSet set;
    set.add(rank);
    return set;
  };
  EXPECT_TRUE(may_leave(members_.view(), set_of(3), EligibleCoordinators::rank_0));
  const uint64_t version = members_.version();
  heartbeats_[3].leaves = true;
  live(2000, 2500);
  EXPECT_EQ(members_.version(), version + 1);
  EXPECT_EQ(members_.view().epoch, 1u);
  EXPECT_EQ(members_.view().present().text(), "0,1,2,3");
  EXPECT_EQ(members_.view().staying().text(), "0,1,2");
  EXPECT_TRUE(may_leave(members_.view(), set_of(3), EligibleCoordinators::rank_0))
      << "it leaves already";
  const auto second = may_leave(members_.view(), set_of(2), EligibleCoordinators::rank_0);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, testing::HasSubstr("2 ranks would be left"));
  members_.leave(3, "it has drained");
  EXPECT_TRUE(join_ready(3, 2600, true, "second"));
  EXPECT_EQ(members_.view().staying().text(), "0,1,2,3") << "its next process stays";
}

// Rank 0 loads, so three of four serve, and two would not.
TEST(RanksThatMayLeave, AreNotThoseWhoseLeaveWouldPauseTheOthersUntilRank0HasLoaded) {
  ClusterView view{.epoch = 7, .tolerate_ranks = 2, .began = true};
  for (int rank = 0; rank < 4; ++rank)
    view.members.push_back({.state = rank == 0 ? MemberState::connected : MemberState::member,
                            .identity = {.rank = rank, .num_ranks = 4}});
  ASSERT_TRUE(view.serves());
  RankSet leaving;
  leaving.add(3);
  const auto allowed = may_leave(view, leaving, EligibleCoordinators::rank_0);
  ASSERT_FALSE(allowed);
  EXPECT_THAT(allowed.error().message, testing::HasSubstr("rank 0 is not among the 2 ranks"));
  EXPECT_FALSE(view.may_lose(leaving)) << "it would pause the others";
  view.members[0].state = MemberState::member;
  EXPECT_TRUE(view.may_lose(leaving));
  EXPECT_TRUE(may_leave(view, leaving, EligibleCoordinators::rank_0));
}

// It is refused for what it is, not for a number of ranks.
TEST(RanksThatMayLeave, AreNotTheOneThatKnowsTheMembers) {
  ClusterView view{.epoch = 7, .tolerate_ranks = 2, .began = true};
  for (int rank = 0; rank < 3; ++rank)
    view.members.push_back(
        {.state = MemberState::member, .identity = {.rank = rank, .num_ranks = 3}});
  RankSet leaving;
  leaving.add(0);
  const auto allowed = may_leave(view, leaving, EligibleCoordinators::rank_0);
  ASSERT_FALSE(allowed);
  EXPECT_THAT(allowed.error().message, testing::HasSubstr("rank 0 knows the members"));
}

TEST_F(ToleratesTest, NoRankLeavesWhileNoEpochServes) {
  begin(2000);
  ClusterView view = members_.view();
  RankSet leaving;
  leaving.add(3);
  ASSERT_TRUE(may_leave(view, leaving, EligibleCoordinators::rank_0));
  view.over = true;  // etcd has not taken the next one
  const auto allowed = may_leave(view, leaving, EligibleCoordinators::rank_0);
  ASSERT_FALSE(allowed);
  EXPECT_EQ(allowed.error().message,
            "the ranks do not serve now: epoch 1 is over, and etcd has not taken the next one yet");
}

}  // namespace
}  // namespace hocket
