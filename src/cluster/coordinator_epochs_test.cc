// Tests which epochs are taken in etcd, whatever fails meanwhile.
#include <map>
#include <random>

#include "base/clock_testing.h"
#include "cluster/coordinator_seat.h"
#include "cluster/coordinator_seat_testing.h"

namespace hocket {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

TEST_F(SeatTest, EpochsCountOnWithTheNextHolder) {
  SeatRank &a = add(0), &b = add(1);
  a.run(), b.run();
  a.tick(), b.tick();
  a.want_epoch(1, "0,1,2");
  EXPECT_EQ(a.tick().taken, 1u);
  EXPECT_THAT(etcd_.find(kEpoch)->value, HasSubstr("1 0 boot0 0,1,2"));
  a.want_epoch(7, "0,2");
  EXPECT_EQ(a.tick().taken, 7u);
  a.seat.resign();
  const CoordinatorSeat::State next = b.tick();
  EXPECT_TRUE(next.mine);
  EXPECT_EQ(next.floor, 7u);
  EXPECT_EQ(next.taken, 7u);
}

TEST_F(SeatTest, AHolderThatIsAwayTakesNoEpochAndLearnsWhoHasTheSeat) {
  SeatRank &a = add(0), &b = add(1);
  a.run(), b.run();
  a.tick(), b.tick();
  a.want_epoch(4, "0,1");
  a.tick();
  a.client.is_cut = true;
  a.want_epoch(5, "0");
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
  b.want_epoch(5, "1");
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

// Its ranks are those of the older term, so it is not taken before the coordinator asks again.
TEST_F(SeatTest, AnEpochThatAnEarlierTermWantedIsNotTaken) {
  SeatRank &a = add(0), &b = add(1);
  a.run(), b.run();
  a.tick(), b.tick();
  a.want_epoch(4, "0,1");
  const int64_t term = a.tick().term;
  a.client.is_cut = true;
  a.want_epoch(9, "0");
  for (int i = 0; i < 20; ++i) {
    pass(milliseconds(250));
    a.tick(), b.tick();
  }
  ASSERT_TRUE(b.seat.state().mine);
  b.want_epoch(5, "1");
  ASSERT_EQ(b.tick().taken, 5u);
  a.client.is_cut = false;
  pass(seconds(1));
  a.tick();
  b.seat.resign();
  for (int i = 0; i < 3; ++i) a.tick();
  const CoordinatorSeat::State state = a.seat.state();
  ASSERT_TRUE(state.mine);
  EXPECT_GT(state.term, term);
  EXPECT_EQ(state.taken, 5u);
  EXPECT_THAT(etcd_.find(kEpoch)->value, HasSubstr("5 1 boot1"));
  a.want_epoch(6, "0");
  EXPECT_EQ(a.tick().taken, 6u);
}

TEST_F(SeatTest, AHolderWhoseSeatWasTakenButWhoDoesNotKnowTakesNoEpoch) {
  SeatRank& a = add(0);
  a.run();
  a.tick();
  a.client.hides_changes = true;
  etcd_.erase(kSeat);
  etcd_.set(kSeat, "boot1 1 10.0.0.2:5000");
  a.want_epoch(1, "0");
  EXPECT_EQ(a.tick().taken, 0u);
  EXPECT_FALSE(etcd_.find(kEpoch));
  const CoordinatorSeat::State state = a.tick();
  EXPECT_FALSE(state.mine);
  EXPECT_EQ(state.holder->rank, 1);
}

TEST_F(SeatTest, ALeaseThatEtcdForgotIsReplacedAndTheSeatTakenAgain) {
  SeatRank& a = add(0);
  a.run();
  a.tick();
  a.want_epoch(3, "0");
  const int64_t term = a.tick().term;
  etcd_.forget_lease(1);
  pass(seconds(1));
  CoordinatorSeat::State state = a.tick();
  for (int i = 0; i < 3 && !state.mine; ++i) state = a.tick();
  EXPECT_TRUE(state.mine);
  EXPECT_GT(state.term, term);
  EXPECT_EQ(state.floor, 3u);  // nobody took an epoch meanwhile
}

TEST_F(SeatTest, AnEpochWithoutAnswerIsTakenAgain) {
  SeatRank& a = add(0);
  a.run();
  a.tick();
  a.client.loses_answers = true;
  a.want_epoch(1, "0");
  EXPECT_EQ(a.tick().taken, 0u);
  ASSERT_TRUE(etcd_.find(kEpoch)) << "it happened";
  a.client.loses_answers = false;
  pass(milliseconds(250));
  EXPECT_EQ(a.tick().taken, 1u);
}

TEST_F(SeatTest, StrangeValuesAreNobodysSeatAndNoEpoch) {
  etcd_.set(kSeat, "\n{}");
  SeatRank& a = add(0);
  a.run();
  CoordinatorSeat::State state = a.tick();
  ASSERT_TRUE(state.holder);
  EXPECT_EQ(state.holder->boot_id, "");
  EXPECT_FALSE(state.mine);
  etcd_.erase(kSeat);
  for (const std::string& value :
       {std::string("-1"), std::to_string(kMaxEpoch - 1), std::to_string(uint64_t{1} << 40)}) {
    etcd_.set(kEpoch, value);
    pass(milliseconds(250));
    state = a.tick();
    EXPECT_FALSE(state.mine);
    EXPECT_THAT(state.problem, HasSubstr("is no epoch: '" + value));
  }
}

// Random orders of failures: no epoch is taken twice, by one rank or by two.
TEST_F(SeatTest, NoEpochIsTakenTwice) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    FakeClock clock;
    MemoryEtcd etcd(clock);
    std::mt19937 random(seed);
    std::vector<std::unique_ptr<SeatRank>> ranks;
    std::vector<uint32_t> announced(3, 0);
    std::map<uint32_t, int> taken_by;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.push_back(std::make_unique<SeatRank>(etcd, clock, identity(rank)));
      ranks.back()->run();
    }
    uint32_t highest = 0;
    for (int step = 0; step < 300; ++step) {
      const size_t i = random() % 3;
      SeatRank& rank = *ranks[i];
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
      rank.want_epoch(state.mine ? std::max(state.floor, announced[i]) + 1 : 0, "0");
    }
    ASSERT_GT(highest, 0u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace hocket
