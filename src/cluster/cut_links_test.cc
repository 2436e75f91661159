// Tests the blame for links that are cut, and how long they keep a rank out.
#include "cluster/membership_testing.h"

namespace hocket {
namespace {

using testing::HasSubstr;

// Ranks 1 and 2 do not reach each other. Rank 2 has come in last, so it is out.
class CutLinkTest : public MembershipTest {
 protected:
  void SetUp() override {
    all_join(0);
    members_.report({.by = 1, .rank = 2, .epoch = 1, .why = "the link carries nothing"}, at(100));
    ASSERT_EQ(state(2), MemberState::connected);
    ASSERT_EQ(members_.view().epoch, 2u);
  }
  void unreachable(int rank, int other) { heartbeats_[rank].unreachable.add(other); }
};

TEST_F(CutLinkTest, TheLoserIsTakenBackWhenBothHearEachOther) {
  unreachable(1, 2);
  unreachable(2, 1);
  live(100, 60'000);
  EXPECT_EQ(members_.view().epoch, 2u) << "one pause, though the link stays cut";
  heartbeats_[2].unreachable = {};
  live(60'000, 61'000);
  EXPECT_EQ(members_.view().epoch, 2u) << "rank 1 does not hear rank 2";
  heartbeats_[1].unreachable = {};
  live(61'000, 61'250);
  EXPECT_TRUE(members_.view().whole());
  EXPECT_EQ(members_.view().epoch, 3u);
}

TEST_F(CutLinkTest, TheLoserItselfMayBeTheOneThatDoesNotHear) {
  unreachable(2, 1);
  live(100, 60'000);
  EXPECT_EQ(members_.view().epoch, 2u);
}

TEST_F(CutLinkTest, ARankThatIsOutBlamesNobody) {
  members_.report({.by = 2, .rank = 1, .epoch = 2, .why = "the link carries nothing"}, at(200));
  EXPECT_EQ(members_.view().epoch, 2u);
  EXPECT_EQ(state(1), MemberState::member);
  members_.report({.by = 2, .rank = -1, .epoch = 2, .why = "a head is damaged"}, at(200));
  EXPECT_EQ(members_.view().epoch, 2u);
}

// Rank 1 still misses the datagrams of the process that has ended.
TEST_F(CutLinkTest, ANewProcessIsTakenBackAtOnce) {
  unreachable(1, 2);
  live(100, 2000);
  ASSERT_EQ(state(2), MemberState::connected);
  members_.cut(2, at(2000));
  EXPECT_TRUE(join(2, 2010, "second"));
  EXPECT_EQ(state(2), MemberState::member);
}

// A coordinator that is new to a rank does not know whether its process is.
TEST_F(MembershipTest, ACoordinatorThatTakesOverKeepsTheNewsOfCutLinks) {
  JoinMessage first{.identity = identity(1), .last_epoch = 5, .heartbeat = {}};
  first.heartbeat.unreachable.add(2);
  EXPECT_TRUE(members_.join(first, at(10)));
  EXPECT_TRUE(join(2, 20));
  EXPECT_EQ(state(2), MemberState::connected);
}

TEST_F(CutLinkTest, TheLogNamesALinkThatIsCutForASecond) {
  unreachable(1, 2);
  testing::internal::CaptureStderr();
  live(100, 1850);  // its pause ends at 1100
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::Not(HasSubstr("link")));
  testing::internal::CaptureStderr();
  live(1850, 5000);
  const std::string log = testing::internal::GetCapturedStderr();
  const std::string line =
      "rank 2 (h2) is not taken back until the link between it and rank 1 (h1) carries datagrams "
      "again, or for 10 minutes";
  EXPECT_THAT(log, HasSubstr(line));
  EXPECT_EQ(log.find(line), log.rfind(line)) << "once";
}

// Where datagrams never came through, nobody is kept out.
TEST_F(CutLinkTest, WithoutNewsOfTheLinkItIsTakenBackAfterItsPause) {
  live(100, 1000);
  EXPECT_EQ(members_.view().epoch, 2u);
  live(1000, 1500);
  EXPECT_EQ(members_.view().epoch, 3u);
}

// A rank that is out itself does not keep another out.
TEST_F(CutLinkTest, OnlyMembersCount) {
  members_.report({.by = 0, .rank = 1, .epoch = 2, .why = "no message"}, at(200));
  ASSERT_EQ(state(1), MemberState::connected);
  unreachable(1, 2);
  live(200, 2000);
  EXPECT_NE(state(1) == MemberState::member, state(2) == MemberState::member);
  EXPECT_EQ(members_.view().present().size(), 3);
}

// Five ranks, of which one may be missing. Rank 0 coordinates, and sends no datagrams.
class FiveRanksTest : public testing::Test {
 protected:
  static constexpr int kRanks = 5;

  static Identity identity(int rank, const std::string& boot) {
    return {.rank = rank,
            .num_ranks = kRanks,
            .host = fmt::format("h{}", rank),
            .boot_id = boot,
            .version = "1"};
  }
  void SetUp() override {
    for (Heartbeat& heartbeat : heartbeats_) heartbeat.terms = "t";
    for (int rank = 1; rank < kRanks; ++rank) join(rank);
    live(std::chrono::seconds(2));
    ASSERT_EQ(present(), "0,1,2,3,4");
    ASSERT_EQ(epoch(), 1u);
  }
  void join(int rank, const std::string& boot = "first") {
    ASSERT_TRUE(members_.join(
        {.identity = identity(rank, boot), .heartbeat = heartbeats_.at(static_cast<size_t>(rank))},
        now_));
  }
  // All send a heartbeat every 250 ms.
  void live(Duration duration) {
    for (const TimePoint until = now_ + duration; now_ < until;) {
      now_ += std::chrono::milliseconds(250);
      for (int rank = 0; rank < kRanks; ++rank)
        members_.heartbeat(rank, heartbeats_.at(static_cast<size_t>(rank)), now_);
      members_.tick(now_);
    }
  }
  void report(int by, int rank) {
    members_.report({.by = by, .rank = rank, .epoch = epoch(), .why = "nothing came"}, now_);
  }
  uint32_t epoch() const { return members_.view().epoch; }
  std::string present() const { return members_.view().present().text(); }

  TimePoint now_{std::chrono::hours(1)};
  Membership members_{identity(0, "first"), LivenessLimits(), now_, {.tolerate_ranks = 1}};
  std::array<Heartbeat, kRanks> heartbeats_;
};

// The datagrams of rank 4 come through, and those to it do not. It would have the others lost one
// after the other.
TEST_F(FiveRanksTest, ARankThatHearsNobodyIsLostItself) {
  for (const int other : {1, 2, 3}) heartbeats_[4].unreachable.add(other);
  live(std::chrono::milliseconds(250));
  report(4, 1);
  EXPECT_EQ(present(), "0,1,2,3");
  EXPECT_TRUE(members_.view().serves());
  EXPECT_EQ(members_.view().why,
            "rank 4 (h4) misses rank 1 (h1), and has 3 cut links, where that has 1: nothing came");
  live(std::chrono::minutes(10));
  EXPECT_EQ(epoch(), 2u) << "it is out";
  live(std::chrono::seconds(2));
  EXPECT_EQ(present(), "0,1,2,3,4") << "it is tried again";
  EXPECT_EQ(epoch(), 3u);
  report(4, 2);
  EXPECT_EQ(present(), "0,1,2,3");
  live(std::chrono::minutes(20));
  EXPECT_EQ(epoch(), 4u);
  live(std::chrono::seconds(3));
  EXPECT_EQ(present(), "0,1,2,3,4");
  report(4, 3);
  live(std::chrono::seconds(5));
  EXPECT_EQ(present(), "0,1,2,3");
  heartbeats_[4].unreachable = {};
  live(std::chrono::milliseconds(250));
  EXPECT_EQ(present(), "0,1,2,3,4") << "the links are whole";
}

// Rank 3 has just come in, and is not at fault.
TEST_F(FiveRanksTest, ARankThatNobodyHearsIsLost) {
  members_.leave(3, "x");
  join(3, "second");
  ASSERT_EQ(present(), "0,1,2,3,4");
  for (const size_t other : {1, 2, 3}) heartbeats_.at(other).unreachable.add(4);
  live(std::chrono::milliseconds(250));
  report(3, 4);
  EXPECT_EQ(present(), "0,1,2,3");
  EXPECT_THAT(members_.view().why, HasSubstr("rank 4 (h4) is missed by rank 3 (h3)"));
}

}  // namespace
}  // namespace hocket
