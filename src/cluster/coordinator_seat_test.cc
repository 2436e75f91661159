#include "cluster/coordinator_seat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cluster/memory_etcd_testing.h"

namespace hocket {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr const char* kSeat = "/hocket/hocket/coordinator";
constexpr const char* kEpoch = "/hocket/hocket/epoch";
constexpr const char* kRank1 = "/hocket/hocket/rank/1";

struct Rank {
  Rank(MemoryEtcd& etcd, const FakeClock& clock, int rank, const std::string& model = "m",
       const std::string& boot = "")
      : client(etcd),
        seat(client, clock,
             {.name = "hocket",
              .self = {.rank = rank,
                       .num_ranks = 3,
                       .host = fmt::format("h{}", rank),
                       .boot_id = boot.empty() ? fmt::format("boot{}", rank) : boot,
                       .model_hash = model}}) {}
  void run() { seat.want(HostPort{"10.0.0.1", 5000}); }
  CoordinatorSeat::State tick() {
    seat.tick();
    return seat.state();
  }

  MemoryEtcd::Client client;
  CoordinatorSeat seat;
};

class SeatTest : public testing::Test {
 protected:
  Rank& add(int rank, const std::string& model = "m", const std::string& boot = "") {
    ranks_.push_back(std::make_unique<Rank>(etcd_, clock_, rank, model, boot));
    return *ranks_.back();
  }
  void pass(Duration time) { clock_.advance(time); }

  FakeClock clock_;
  MemoryEtcd etcd_{clock_};
  std::vector<std::unique_ptr<Rank>> ranks_;
};

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

TEST_F(SeatTest, EpochsCountOnWithTheNextHolder) {
  Rank &a = add(0), &b = add(1);
  a.run(), b.run();
  a.tick(), b.tick();
  a.seat.want_epoch(1, "0,1,2");
  EXPECT_EQ(a.tick().taken, 1u);
  EXPECT_THAT(etcd_.find(kEpoch)->value, HasSubstr("1 0 boot0 0,1,2"));
  a.seat.want_epoch(7, "0,2");
  EXPECT_EQ(a.tick().taken, 7u);
  a.seat.resign();
  const CoordinatorSeat::State next = b.tick();
  EXPECT_TRUE(next.mine);
  EXPECT_EQ(next.floor, 7u);
  EXPECT_EQ(next.taken, 7u);
}

TEST_F(SeatTest, AHolderThatIsAwayTakesNoEpochAndLearnsWhoHasTheSeat) {
  Rank &a = add(0), &b = add(1);
  a.run(), b.run();
  a.tick(), b.tick();
  a.seat.want_epoch(4, "0,1");
  a.tick();
  a.client.is_cut = true;
  a.seat.want_epoch(5, "0");
  for (int i = 0; i < 16; ++i) {
    pass(milliseconds(250));
    const bool lease_may_live = i + 1 < 14;  // 3.5 s: the lease less its margin
    const CoordinatorSeat::State state = a.tick();
    EXPECT_EQ(state.mine, lease_may_live) << i;
    EXPECT_EQ(state.taken, 4u);
    EXPECT_THAT(state.problem, HasSubstr("no server of etcd answers"));
    if (lease_may_live) {
      EXPECT_FALSE(b.tick().mine);
    }
  }
  const CoordinatorSeat::State next = b.tick();
  EXPECT_TRUE(next.mine);
  EXPECT_EQ(next.floor, 4u);
  b.seat.want_epoch(5, "1");
  EXPECT_EQ(b.tick().taken, 5u);
  a.client.is_cut = false;
  pass(seconds(1));
  const CoordinatorSeat::State back = a.tick();
  EXPECT_FALSE(back.mine);
  EXPECT_EQ(back.holder->rank, 1);
  EXPECT_EQ(back.taken, 4u);
  EXPECT_EQ(back.problem, "");
  EXPECT_THAT(etcd_.find(kEpoch)->value, HasSubstr("5 1 boot1"));
}

TEST_F(SeatTest, AHolderWhoseSeatWasTakenButWhoDoesNotKnowTakesNoEpoch) {
  Rank& a = add(0);
  a.run();
  a.tick();
  a.client.hides_changes = true;
  etcd_.erase(kSeat);
  etcd_.set(kSeat, "boot1 1 10.0.0.2:5000");
  a.seat.want_epoch(1, "0");
  EXPECT_EQ(a.tick().taken, 0u);
  EXPECT_FALSE(etcd_.find(kEpoch));
  const CoordinatorSeat::State state = a.tick();
  EXPECT_FALSE(state.mine);
  EXPECT_EQ(state.holder->rank, 1);
}

TEST_F(SeatTest, ALeaseThatEtcdForgotIsReplacedAndTheSeatTakenAgain) {
  Rank& a = add(0);
  a.run();
  a.tick();
  a.seat.want_epoch(3, "0");
  const int64_t term = a.tick().term;
  etcd_.forget_lease(1);
  pass(seconds(1));
  CoordinatorSeat::State state = a.tick();
  for (int i = 0; i < 3 && !state.mine; ++i) state = a.tick();
  EXPECT_TRUE(state.mine);
  EXPECT_GT(state.term, term);
  EXPECT_EQ(state.floor, 3u);  // nobody took an epoch meanwhile
}

TEST_F(SeatTest, ASwapWithoutAnswerCountsIfItHappened) {
  Rank& a = add(0);
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
  Rank& a = add(0);
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

TEST_F(SeatTest, AnEpochWithoutAnswerIsTakenAgain) {
  Rank& a = add(0);
  a.run();
  a.tick();
  a.client.loses_answers = true;
  a.seat.want_epoch(1, "0");
  EXPECT_EQ(a.tick().taken, 0u);
  ASSERT_TRUE(etcd_.find(kEpoch)) << "it happened";
  a.client.loses_answers = false;
  pass(milliseconds(250));
  EXPECT_EQ(a.tick().taken, 1u);
}

TEST_F(SeatTest, ABrokenOrCompactedWatchIsBegunAnew) {
  Rank &a = add(0), &b = add(1);
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
  Rank& a = add(0);
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
  Rank& a = add(0);
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
  Rank& a = add(0);
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

TEST_F(SeatTest, AnOlderRankThatDisagreesKeepsTheSeatFromANewOne) {
  Rank &old = add(0), &other = add(1, "another model");
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
  Rank& first = add(1);
  first.tick();
  Rank& second = add(1, "m", "another");
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
  Rank& a = add(0);
  a.run();
  EXPECT_TRUE(a.tick().mine);
  a.seat.want(std::nullopt);
  EXPECT_FALSE(a.tick().mine);
  EXPECT_FALSE(etcd_.find(kSeat));
}

TEST_F(SeatTest, WhoseProcessHasEndedLosesTheSeatAtOnce) {
  Rank &a = add(0), &b = add(1);
  a.run(), a.tick(), b.run();
  b.seat.end_term(b.tick().holder_term + 1);
  EXPECT_EQ(b.tick().holder->rank, 0) << "another term was meant";
  b.seat.end_term(b.tick().holder_term);
  EXPECT_TRUE(b.tick().mine);
  // It has not ended: it learns who has the seat.
  a.seat.want_epoch(1, "0");
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
  Rank &a = add(0), &b = add(1), &c = add(2);
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

TEST_F(SeatTest, StrangeValuesAreNobodysSeatAndNoEpoch) {
  etcd_.set(kSeat, "\n{}");
  Rank& a = add(0);
  a.run();
  CoordinatorSeat::State state = a.tick();
  ASSERT_TRUE(state.holder);
  EXPECT_EQ(state.holder->boot_id, "");
  EXPECT_FALSE(state.mine);
  etcd_.erase(kSeat);
  etcd_.set(kEpoch, "-1");
  state = a.tick();
  EXPECT_FALSE(state.mine);
  EXPECT_THAT(state.problem, HasSubstr("is no epoch"));
}

// Random orders of failures: no epoch is taken twice, by one rank or by two.
TEST_F(SeatTest, NoEpochIsTakenTwice) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    FakeClock clock;
    MemoryEtcd etcd(clock);
    std::mt19937 random(seed);
    std::vector<std::unique_ptr<Rank>> ranks;
    std::vector<uint32_t> announced(3, 0);
    std::map<uint32_t, int> taken_by;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.push_back(std::make_unique<Rank>(etcd, clock, rank));
      ranks.back()->run();
    }
    uint32_t highest = 0;
    for (int step = 0; step < 300; ++step) {
      const size_t i = random() % 3;
      Rank& rank = *ranks[i];
      switch (random() % 8) {
        case 0:
          rank.client.is_cut = !rank.client.is_cut;
          break;
        case 1:
          rank.client.loses_answers = random() % 2 == 0;
          break;
        case 2:
          rank.client.breaks_watches = true;
          break;
        case 3:
          rank.client.hides_changes = random() % 2 == 0;
          break;
        case 4:
          etcd.compact();
          break;
        case 5:
          rank.seat.end_term(rank.seat.state().holder_term);
          break;
        default:
          clock.advance(milliseconds(random() % 700));
          break;
      }
      const CoordinatorSeat::State state = rank.tick();
      if (state.mine && state.taken > state.floor && state.taken > announced[i]) {
        announced[i] = state.taken;
        const auto [entry, is_new] = taken_by.emplace(state.taken, i);
        ASSERT_TRUE(is_new || entry->second == static_cast<int>(i)) << "seed " << seed;
        ASSERT_GT(state.taken, highest) << "seed " << seed;
        highest = state.taken;
      }
      rank.seat.want_epoch(state.mine ? std::max(state.floor, announced[i]) + 1 : 0, "0");
    }
    ASSERT_GT(highest, 0u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace hocket
