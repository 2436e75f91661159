// Tests a ledger on a network that does not tell when a message came: a rank notices it in a wait,
// or long after.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/clock_testing.h"
#include "compute/overlap/ledger.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;

// All times count from the begin of the step.
class LateLedgerTest : public ::testing::Test {
 protected:
  struct Times {
    Duration pushed, there, wait_in;
    int64_t bytes = 0;
    MessageKind kind = MessageKind::dispatch;
  };
  void begin(Duration compute) {
    base_ = clock_.now();
    ledger_.begin_step(base_);
    ledger_.begin_pass(1, {}, {}, false);
    ledger_.begin_op(0, Op::shared, 0);
    clock_.advance(compute);
    ledger_.end_op();
  }
  void waited(int part, const Times& times) {
    ledger_.begin_op(0, Op::dispatch_wait, 0);
    clock_.advance(base_ + times.there - clock_.now());
    ledger_.finished(part, times.kind, {},
                     {.start = base_,
                      .posted = base_,
                      .peers_posted = base_ + times.pushed,
                      .last_byte = base_ + times.there,
                      .wait_in = base_ + times.wait_in,
                      .wait_out = base_ + times.there,
                      .in_bytes = static_cast<uint64_t>(times.bytes)});
    ledger_.end_op();
  }
  // Plays a step that computes until `at`, then looks for `count` messages of `bytes` each, which
  // are noticed at that moment; all were pushed at 10 us.
  const StepAccount& noticed_at(Duration at, int64_t bytes,
                                MessageKind kind = MessageKind::dispatch, int count = 1) {
    begin(at);
    for (int part = 0; part < count; ++part)
      waited(part, {.pushed = 10us, .there = at, .wait_in = at, .bytes = bytes, .kind = kind});
    return ledger_.end_step(clock_.now());
  }
  // Plays a step with one message that was pushed at 0 and is waited for from wait_in until it
  // comes.
  const StepAccount& came_at(Duration at, int64_t bytes, Duration wait_in = 0us) {
    begin(wait_in);
    waited(0, {.pushed = 0us, .there = at, .wait_in = wait_in, .bytes = bytes});
    return ledger_.end_step(clock_.now());
  }

  FakeClock clock_;
  TimePoint base_{};
  Ledger ledger_{{.num_layers = 3, .num_ranks = 2}, clock_};
};

TEST_F(LateLedgerTest, WhatWasLookedForLateHidesNoMoreThanItsTimeOnTheLink) {
  EXPECT_EQ(noticed_at(100us, 1000).hidden, 90us);  // nothing is known
  EXPECT_TRUE(ledger_.account().hidden_is_bound);
  EXPECT_EQ(came_at(20us, 1000).hidden, 0us);
  EXPECT_FALSE(ledger_.account().hidden_is_bound);
  EXPECT_EQ(noticed_at(100us, 1000).hidden, 20us);
  EXPECT_FALSE(ledger_.account().hidden_is_bound);
  EXPECT_EQ(ledger_.layers()[0].hidden, 20us);
  EXPECT_EQ(ledger_.account().busy[0], 90us);
  EXPECT_EQ(noticed_at(100us, 2000).hidden, 40us);
  // They travel one after the other.
  EXPECT_EQ(noticed_at(100us, 1000, MessageKind::dispatch, 3).hidden, 60us);
  EXPECT_EQ(noticed_at(15us, 1000).hidden, 5us);
  // This kind was never seen to come.
  EXPECT_EQ(noticed_at(100us, 1000, MessageKind::combine).hidden, 90us);
  EXPECT_TRUE(ledger_.account().hidden_is_bound);
}

TEST_F(LateLedgerTest, LinksThatChangeAreSeenAgain) {
  for (int i = 0; i < 20; ++i) came_at(20us, 1000);
  for (int i = 0; i < 3; ++i) came_at(60us, 1000);
  EXPECT_EQ(noticed_at(100us, 1000).hidden, 60us);
  // Most of its time on the link was not waited for, so it teaches nothing.
  EXPECT_EQ(came_at(100us, 1000, 51us).hidden, 51us);
  EXPECT_EQ(noticed_at(100us, 1000).hidden, 60us);
}

// For any messages, the hidden time is at most what a ledger books that believes the noticed
// arrivals; all other numbers are equal.
TEST_F(LateLedgerTest, AnEstimateLiesBelowTheBound) {
  Ledger believer({.num_layers = 3, .num_ranks = 2, .exact_arrival = true}, clock_);
  std::mt19937 random(11);
  const auto draw = [&](int most) { return Duration(random() % most); };
  Duration bounds{}, estimates{};
  for (int round = 0; round < 300; ++round) {
    const TimePoint base = clock_.now();
    for (Ledger* ledger : {&ledger_, &believer}) {
      ledger->begin_step(base);
      ledger->begin_pass(1, {}, {}, false);
    }
    for (int i = 0; i < 24; ++i) {
      clock_.advance(draw(60));
      const TimePoint in = clock_.now(), pushed = std::max(base, in - draw(80) + 20ns);
      const TimePoint there = std::max(in, pushed) + draw(30);
      const ExchangeTimes times{.start = base,
                                .posted = base,
                                .peers_posted = pushed,
                                .last_byte = there,
                                .wait_in = in,
                                .wait_out = there,
                                .in_bytes = 100 * (1 + random() % 4)};
      clock_.advance(there - in);
      const auto kind = random() % 2 == 0 ? MessageKind::dispatch : MessageKind::combine;
      for (Ledger* ledger : {&ledger_, &believer}) ledger->finished(i % kMaxLanes, kind, {}, times);
    }
    const StepAccount &a = ledger_.end_step(clock_.now()), &b = believer.end_step(clock_.now());
    ASSERT_GE(a.hidden, 0ns);
    ASSERT_LE(a.hidden, b.hidden);
    ASSERT_EQ(a.exposed, b.exposed);
    ASSERT_EQ(a.waiting, b.waiting);
    ASSERT_EQ(a.busy, b.busy);
    ASSERT_FALSE(b.hidden_is_bound);
    bounds += b.hidden, estimates += a.hidden;
  }
  EXPECT_LT(estimates, bounds);
}

}  // namespace
}  // namespace hocket
