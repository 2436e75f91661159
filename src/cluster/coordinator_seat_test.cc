// Tests who has the seat, and since when.
#include "cluster/coordinator_seat.h"

#include "cluster/coordinator_seat_testing.h"

namespace hocket {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr const char* kRank1 = "/hocket/hocket/rank/1";

TEST_F(SeatTest, OneOfThreeHasItAndAllKnow) {
  for (int rank = 0; rank < 3; ++rank) add(rank).run();
  for (const auto& rank : ranks_) rank->tick();
  EXPECT_TRUE(ranks_[0]->seat.state().mine);
  for (const auto& rank : ranks_) {
    const CoordinatorSeat::State state = rank->tick();
    ASSERT_TRUE(state.holder);
    EXPECT_EQ(*state.holder, (SeatHolder{"boot0", 0, {"10.0.0.1", 5000}}));
    EXPECT_EQ(state.mine, rank == ranks_[0]);
    EXPECT_EQ(state.problem, "");
  }
}

TEST_F(SeatTest, WhoDoesNotWantItDoesNotTakeIt) {
  const CoordinatorSeat::State state = add(0).tick();
  EXPECT_TRUE(state.known);
  EXPECT_FALSE(state.holder);
}

TEST_F(SeatTest, ASwapWithoutAnswerCountsIfItHappened) {
  SeatRank& a = add(0);
  a.tick();  // the lease
  a.run();
  a.client.loses_swaps = true;
  EXPECT_FALSE(a.tick().mine);
  ASSERT_TRUE(etcd_.find(kSeat)) << "it happened";
  a.client.loses_swaps = false;
  pass(milliseconds(250));
  EXPECT_TRUE(a.tick().mine);
}

TEST_F(SeatTest, ASeatTakenForAnAddressOfTheDayBeforeIsGivenBack) {
  SeatRank& a = add(0);
  a.tick();
  a.run();
  a.client.loses_swaps = true;
  a.tick();
  a.client.loses_swaps = false;
  a.seat.want(HostPort{"10.0.0.1", 6000});
  pass(milliseconds(250));
  a.tick();
  const CoordinatorSeat::State state = a.tick();
  EXPECT_TRUE(state.mine);
  EXPECT_EQ(state.holder->address.port, 6000);
}

TEST_F(SeatTest, ABrokenOrCompactedWatchIsBegunAnew) {
  SeatRank &a = add(0), &b = add(1);
  a.run();
  a.tick(), b.tick();
  pass(seconds(1));
  a.tick();
  const int before = b.client.num_watches;
  b.client.breaks_watches = true;
  etcd_.erase(kSeat);
  EXPECT_FALSE(b.tick().holder);
  EXPECT_EQ(b.client.num_watches, before + 1);
  pass(seconds(1));
  etcd_.set(kSeat, "boot1 1 10.0.0.9:1");
  etcd_.set(kSeat, "boot9 2 10.0.0.9:1");
  etcd_.compact();  // the watch has seen neither, and may not see the first
  EXPECT_EQ(b.tick().holder->rank, 2);
  EXPECT_EQ(b.client.num_watches, before + 2);
}

TEST_F(SeatTest, AWatchThatAlwaysBreaksIsNotBegunInALoop) {
  SeatRank& a = add(0);
  a.tick();
  pass(seconds(1));
  const int before = a.client.num_watches;
  for (int i = 0; i < 100; ++i) {
    a.client.breaks_watches = true;
    a.tick();
  }
  EXPECT_LE(a.client.num_watches, before + 1);
}

// A watch that has data meanwhile is read at the next try.
TEST_F(SeatTest, RestsAfterAnErrorUntilTheNextTry) {
  SeatRank& a = add(0);
  a.tick();
  EXPECT_FALSE(a.seat.backs_off());
  a.client.is_cut = true;
  EXPECT_NE(a.tick().problem, "");
  EXPECT_TRUE(a.seat.backs_off());
  EXPECT_EQ(a.seat.next_deadline(), clock_.now() + milliseconds(250));
  a.client.is_cut = false;
  EXPECT_NE(a.tick().problem, "");
  pass(milliseconds(250));
  EXPECT_FALSE(a.seat.backs_off());
  EXPECT_EQ(a.tick().problem, "");
}

TEST_F(SeatTest, NewsFromBeforeTheSwapAreNoNews) {
  SeatRank& a = add(0);
  a.tick();
  a.client.hides_changes = true;
  etcd_.set(kSeat, "boot1 1 10.0.0.2:5000");
  etcd_.erase(kSeat);
  a.run();
  EXPECT_TRUE(a.tick().mine);
  // The watch brings the other's seat, its end, and this rank's, one after the other.
  a.client.hides_changes = false;
  a.client.max_changes = 1;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(a.tick().mine) << i;
}

// It would refuse the older rank, or be refused by it, once one of them coordinates.
TEST_F(SeatTest, ANewRankThatDisagreesInAnythingDoesNotTakeTheSeat) {
  const Identity own = identity(0);
  add(own).tick();
  std::vector<Identity> others(7, identity(1));
  others[0].version = "2";
  others[1].num_ranks = 4;
  others[2].ranks_per_node = 2;
  others[3].model_hash = "another";
  others[4].plans = "another";
  others[5].arithmetic = "another";
  others[6].disaggregation = "prefill";
  for (const Identity& other : others) {
    const auto why = disagreement(own, other);
    ASSERT_TRUE(why);
    SeatRank& rank = add(other);
    rank.run();
    EXPECT_FALSE(rank.tick().mine) << why->message;
    rank.seat.resign();
  }
  SeatRank& like = add(1);
  like.run();
  EXPECT_TRUE(like.tick().mine);
}

TEST_F(SeatTest, AnOlderRankThatDisagreesKeepsTheSeatFromANewOne) {
  Identity another = identity(1);
  another.model_hash = "another model";
  SeatRank &old = add(0), &other = add(another);
  old.tick();
  other.run();
  EXPECT_FALSE(other.tick().mine);
  old.run();
  EXPECT_TRUE(old.tick().mine);
  // The older one goes, and the new one is free to coordinate.
  old.seat.resign();
  EXPECT_TRUE(other.tick().mine);
}

// The second process of a rank leaves the first one's entry alone, and takes no seat beside it.
TEST_F(SeatTest, ASecondProcessOfARankTakesNothingFromTheFirst) {
  SeatRank& first = add(1);
  first.tick();
  Identity another = identity(1);
  another.boot_id = "another";
  SeatRank& second = add(another);
  second.run();
  EXPECT_FALSE(second.tick().mine);
  EXPECT_TRUE(second.seat.state().known) << "it may follow whoever coordinates";
  EXPECT_THAT(etcd_.find(kRank1)->value, HasSubstr("boot1 "));
  second.seat.resign();
  first.run();
  EXPECT_TRUE(first.tick().mine);
  // Once the first has ended, the second is the rank.
  first.client.is_cut = true;
  pass(seconds(6));
  second.tick();
  pass(seconds(1));
  EXPECT_TRUE(second.tick().mine);
  EXPECT_THAT(etcd_.find(kRank1)->value, HasSubstr("another "));
}

TEST_F(SeatTest, WhoNoLongerWantsItGivesItBack) {
  SeatRank& a = add(0);
  a.run();
  EXPECT_TRUE(a.tick().mine);
  a.seat.want(std::nullopt);
  EXPECT_FALSE(a.tick().mine);
  EXPECT_FALSE(etcd_.find(kSeat));
}

TEST_F(SeatTest, WhoseProcessHasEndedLosesTheSeatAtOnce) {
  SeatRank &a = add(0), &b = add(1);
  a.run(), a.tick(), b.run();
  b.seat.end_term(b.tick().holder_term + 1);
  EXPECT_EQ(b.tick().holder->rank, 0) << "another term was meant";
  b.seat.end_term(b.tick().holder_term);
  EXPECT_TRUE(b.tick().mine);
  // It has not ended: it learns who has the seat.
  a.want_epoch(1, "0");
  const CoordinatorSeat::State state = a.tick();
  EXPECT_FALSE(state.mine);
  EXPECT_EQ(state.holder->rank, 1);
  EXPECT_FALSE(etcd_.find(kEpoch));
  b.seat.want(std::nullopt);
  b.tick();
  EXPECT_TRUE(a.tick().mine);
  EXPECT_TRUE(b.tick().holder) << "its next term is its own";
  EXPECT_TRUE(a.tick().mine);
}

TEST_F(SeatTest, ATermThatFollowedStays) {
  SeatRank &a = add(0), &b = add(1), &c = add(2);
  a.run();
  a.tick(), b.tick();
  b.client.hides_changes = true;
  b.seat.end_term(b.tick().holder_term);
  a.seat.resign();
  c.run();
  EXPECT_TRUE(c.tick().mine);
  EXPECT_EQ(b.tick().holder->rank, 2) << "the term that b would end is over already";
  EXPECT_TRUE(c.tick().mine);
}

}  // namespace
}  // namespace hocket
