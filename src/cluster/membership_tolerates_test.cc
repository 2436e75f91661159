// Tests members of which some may be missing (Membership::Start::tolerate_ranks).
#include "cluster/leaving.h"
#include "cluster/membership_testing.h"

namespace hocket {
namespace {

// The same ranks, of which one may be missing once all were ready.
class ToleratesTest : public MembershipTest {
 protected:
  explicit ToleratesTest(uint32_t last_epoch = 0, bool began = false)
      : MembershipTest({.last_epoch = last_epoch, .tolerate_ranks = 1, .began = began}) {}
  Result<void> join_ready(int rank, int64_t ms, bool ready, const std::string& boot = "first") {
    return members_.join({.identity = identity(rank, boot), .beat = {.terms = ready ? "t" : ""}},
                         at(ms));
  }
  // All join while they load, are ready, and live until `ms`.
  void begin(int64_t ms) {
    all_join(0);
    for (Beat& beat : beats_) beat.terms = "t";
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
  members_.beat(3, {}, at(2500));
  EXPECT_EQ(members_.view().epoch, 2u) << "the others serve on";
  EXPECT_EQ(presence(3), Presence::connected);
  members_.beat(3, {.terms = "t"}, at(2600));
  EXPECT_EQ(members_.view().epoch, 3u);
  EXPECT_TRUE(members_.view().whole());
}

class TakesOverTest : public ToleratesTest {
 protected:
  TakesOverTest() : ToleratesTest(7, true) {}
};

// A new coordinator knows of no rank at first; all dial it within a moment.
TEST_F(TakesOverTest, ACoordinatorGathersTheRanks) {
  EXPECT_EQ(presence(0), Presence::connected) << "it may be loading";
  members_.beat(0, {.terms = "t"}, at(10));
  EXPECT_EQ(presence(0), Presence::member);
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
  JoinMessage resumed{.identity = identity(1), .last_epoch = 5, .began = true, .beat = {}};
  resumed.beat.terms = "t";
  EXPECT_TRUE(members_.join(resumed, at(10)));
  EXPECT_TRUE(join_ready(2, 20, true));
  for (Beat& beat : beats_) beat.terms = "t";
  live(20, 1100);
  EXPECT_TRUE(members_.view().serves()) << "rank 0 alone was started anew";
}

// One that was started with other flags is refused before it disturbs the others.
TEST_F(ToleratesTest, WhoComesBackWithOtherTermsIsRefused) {
  begin(2000);
  end_of(3, 2000);
  EXPECT_TRUE(join_ready(3, 2400, false, "second"));
  const auto taken = members_.beat(3, {.terms = "other"}, at(2500));
  EXPECT_EQ(taken.error().code, ErrorCode::lost_rank);
  EXPECT_EQ(taken.error().message,
            "the ranks' messages differ in size: rank 0 (h0) has t, rank 3 (h3) has other");
  members_.tick(at(2500));
  EXPECT_EQ(members_.view().epoch, 2u);
  EXPECT_EQ(presence(3), Presence::connected);
  const auto joined =
      members_.join({.identity = identity(3, "third"), .beat = {.terms = "other"}}, at(6000));
  EXPECT_EQ(joined.error().code, ErrorCode::lost_rank);
  const auto strange = members_.beat(3, {.terms = "a\nb"}, at(6000));
  EXPECT_EQ(strange.error().code, ErrorCode::bad_value);
}

// Its number says nothing about the epoch in which the others serve, until it is in one itself.
TEST_F(ToleratesTest, WhoLoadsDoesNotChangeTheEpochOfTheOthers) {
  begin(2000);
  end_of(3, 2000);
  ASSERT_EQ(members_.view().epoch, 2u);
  JoinMessage known{.identity = identity(3, "second"), .last_epoch = 9, .beat = {}};
  EXPECT_TRUE(members_.join(known, at(2400)));
  EXPECT_EQ(members_.view().epoch, 2u);
  EXPECT_EQ(members_.view().present().text(), "0,1,2");
  members_.beat(3, {.terms = "t"}, at(2600));
  EXPECT_EQ(members_.view().epoch, 10u);
}

// A coordinator that was started anew loads, and learns from the others that the service began.
TEST_F(ToleratesTest, TheOthersServeWhileANewCoordinatorLoads) {
  for (const int rank : {1, 2, 3})
    EXPECT_TRUE(members_.join(
        {.identity = identity(rank), .last_epoch = 5, .began = true, .beat = {.terms = "t"}},
        at(10)));
  members_.tick(at(1100));
  EXPECT_TRUE(members_.view().serves());
  EXPECT_EQ(members_.view().present().text(), "1,2,3");
  members_.beat(0, {.terms = "t"}, at(1200));
  EXPECT_TRUE(members_.view().whole());
}

// A rank that drains is still there, but the others must be enough without it.
TEST_F(ToleratesTest, RanksThatLeaveDoNotCountAsStaying) {
  begin(2000);
  const auto set_of = [](int rank) {
    RankSet set;
    set.add(rank);
    return set;
  };
  EXPECT_TRUE(may_leave(members_.view(), set_of(3), Coordinators::rank_0));
  const uint64_t version = members_.version();
  beats_[3].leaves = true;
  live(2000, 2500);
  EXPECT_EQ(members_.version(), version + 1);
  EXPECT_EQ(members_.view().epoch, 1u);
  EXPECT_EQ(members_.view().present().text(), "0,1,2,3");
  EXPECT_EQ(members_.view().staying().text(), "0,1,2");
  EXPECT_TRUE(may_leave(members_.view(), set_of(3), Coordinators::rank_0)) << "it leaves already";
  const auto second = may_leave(members_.view(), set_of(2), Coordinators::rank_0);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, testing::HasSubstr("2 ranks would be left"));
  members_.leave(3, "it has drained");
  EXPECT_TRUE(join_ready(3, 2600, true, "second"));
  EXPECT_EQ(members_.view().staying().text(), "0,1,2,3") << "its next process stays";
}

}  // namespace
}  // namespace hocket
