#include "compute/overlap/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "base/clock_testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using Kind = LedgerSpan::Kind;

constexpr auto kDispatch = MessageKind::dispatch, kCombine = MessageKind::combine,
               kAgree = MessageKind::agree;

// A ledger with a clock that the test sets, in microseconds from the begin of the step.
class LedgerTest : public ::testing::Test {
 protected:
  LedgerTest() { clock_.advance(1s); }

  void begin() {
    base_ = clock_.now();
    ledger_.begin_step(base_);
  }
  Duration now() const { return clock_.now() - base_; }
  void pass(int order = 0) { ledger_.begin_pass(7, {.order = order}, {}, false); }
  void go(Duration d) { clock_.advance(d); }
  void op(int layer, Op op, Duration d, int half = 0) {
    ledger_.begin_op(layer, op, half);
    go(d);
    ledger_.end_op();
  }
  // The times that an exchange would report, from the begin of the step.
  struct Times {
    Duration pushed, there, wait_in, wait_out;
    int64_t in_bytes = 0, out_bytes = 0;
  };
  void waited(int lane, MessageKind kind, const Times& times, int layer = 0) {
    ledger_.finished(lane, kind, {.step = 7, .layer = static_cast<uint16_t>(layer)},
                     {.start = base_,
                      .posted = base_,
                      .peers_posted = base_ + times.pushed,
                      .last_byte = base_ + times.there,
                      .wait_in = base_ + times.wait_in,
                      .wait_out = base_ + times.wait_out,
                      .out_bytes = static_cast<uint64_t>(times.out_bytes),
                      .in_bytes = static_cast<uint64_t>(times.in_bytes)});
  }
  // Waits within the operation `op` and computes before and after it.
  void wait_in_op(int layer, Op op, int lane, MessageKind kind, const Times& times,
                  Duration after) {
    ledger_.begin_op(layer, op, lane / kMaxParts);
    go(times.wait_out - now());
    waited(lane, kind, times, layer);
    go(after);
    ledger_.end_op();
  }
  const StepAccount& end() { return ledger_.end_step(clock_.now()); }
  static Duration sum(const StepAccount& a) {
    return a.computed() + a.other + a.exposed + a.waiting + a.idle;
  }

  FakeClock clock_;
  TimePoint base_{};
  Ledger ledger_{{.num_layers = 3, .num_ranks = 2, .exact_arrival = true}, clock_};
};

TEST_F(LedgerTest, EachMomentIsBookedToTheInnermostThing) {
  begin();
  go(1us);
  {
    const Ledger::OtherWork turn(&ledger_);
    go(2us);
    pass();
    {
      const Ledger::OtherWork embedding(&ledger_);
      go(4us);
    }
    op(0, Op::attn_in, 8us);
    go(16us);  // booked to the next operation
    op(1, Op::attn_in, 32us, 1);
    op(1, Op::experts, 64us, 1);
  }
  go(128us);
  const StepAccount& a = end();
  EXPECT_EQ(a.took, 255us);
  EXPECT_EQ(a.compute[static_cast<size_t>(Op::attn_in)], 56us);
  EXPECT_EQ(a.compute[static_cast<size_t>(Op::experts)], 64us);
  EXPECT_EQ(a.other, 6us);
  EXPECT_EQ(a.idle, 129us);
  EXPECT_EQ(a.half_compute[0], 8us);
  EXPECT_EQ(a.half_compute[1], 112us);
  EXPECT_DOUBLE_EQ(a.half_imbalance(), 112.0 / 60);
  EXPECT_EQ(ledger_.layers()[1].compute[static_cast<size_t>(Op::attn_in)], 48us);
  EXPECT_EQ(sum(a), a.took);
}

TEST_F(LedgerTest, WhoHasNotSentIsWaitedForAndWhatIsUnderWayIsExposed) {
  begin();
  pass();
  op(0, Op::attn_in, 100us);
  // The peer pushes at 130, all rows are here at 150, and the rank waits for them from 110 on.
  wait_in_op(0, Op::dispatch_wait, 0, kDispatch,
             {.pushed = 130us, .there = 150us, .wait_in = 110us, .wait_out = 151us}, 9us);
  const StepAccount& a = end();
  EXPECT_EQ(a.waiting, 20us);
  EXPECT_EQ(a.exposed, 21us);
  EXPECT_EQ(a.hidden, 0us);
  EXPECT_EQ(a.compute[static_cast<size_t>(Op::dispatch_wait)], 19us);
  EXPECT_EQ(a.busy[0], 20us);
  EXPECT_EQ(ledger_.layers()[0].waiting, 20us);
  EXPECT_EQ(ledger_.layers()[0].exposed, 21us);
  EXPECT_EQ(sum(a), a.took);
}

TEST_F(LedgerTest, AnAgreementIsWaitingAndTellsTheLatency) {
  begin();
  go(40us);
  waited(0, kAgree, {.pushed = 10us, .there = 13us, .wait_in = 2us, .wait_out = 40us});
  pass();
  op(0, Op::attn_in, 10us);
  const StepAccount& a = end();
  EXPECT_EQ(a.waiting, 38us);
  EXPECT_EQ(a.exposed, 0us);
  EXPECT_EQ(a.latency, 3us);
  EXPECT_EQ(sum(a), a.took);
}

// Two halves: the dispatch of a travels under the attention of b, the combine of a behind the
// dispatch of b.
TEST_F(LedgerTest, WhatTravelsWhileSomethingIsComputedIsHiddenOnce) {
  begin();
  pass(1);
  op(0, Op::attn_in, 10us);
  op(0, Op::attn_in, 20us, 1);
  wait_in_op(0, Op::dispatch_wait, 0, kDispatch,
             {.pushed = 10us, .there = 35us, .wait_in = 30us, .wait_out = 35us}, 0us);
  op(0, Op::experts, 25us);
  op(0, Op::shared, 10us);
  wait_in_op(0, Op::dispatch_wait, kMaxParts, kDispatch,
             {.pushed = 30us, .there = 50us, .wait_in = 70us, .wait_out = 70us}, 0us);
  wait_in_op(0, Op::combine_wait, 0, kCombine,
             {.pushed = 60us, .there = 65us, .wait_in = 70us, .wait_out = 70us}, 1us);
  const StepAccount& a = end();
  EXPECT_EQ(a.exposed, 5us);
  EXPECT_EQ(a.hidden, 40us);  // 10-30, 35-50, 60-65
  EXPECT_DOUBLE_EQ(a.hidden_share(), 40.0 / 45);
  EXPECT_EQ(a.busy[0], 40us);  // b's message counts from when a's has arrived
  EXPECT_EQ(a.busy[1], 5us);
  EXPECT_EQ(sum(a), a.took);
}

// While this rank waits for a slower one it computes nothing, so what travels then is not hidden.
TEST_F(LedgerTest, WhatTravelsWhileAnotherIsWaitedForIsNotHidden) {
  begin();
  pass(1);
  op(0, Op::attn_in, 10us);
  wait_in_op(0, Op::dispatch_wait, 0, kDispatch,
             {.pushed = 50us, .there = 60us, .wait_in = 10us, .wait_out = 60us}, 0us);
  wait_in_op(0, Op::dispatch_wait, kMaxParts, kDispatch,
             {.pushed = 0us, .there = 40us, .wait_in = 60us, .wait_out = 60us}, 0us);
  const StepAccount& a = end();
  EXPECT_EQ(a.waiting, 40us);
  EXPECT_EQ(a.exposed, 10us);
  EXPECT_EQ(a.hidden, 10us);  // under attn_in
  EXPECT_EQ(a.busy[0], 50us);
  EXPECT_EQ(sum(a), a.took);
}

TEST_F(LedgerTest, TheLinkIsBusyForWhatIsNotLatency) {
  begin();
  waited(0, kAgree, {.pushed = 0us, .there = 4us, .wait_in = 0us, .wait_out = 0us});
  pass();
  op(0, Op::attn_in, 100us);
  // Two messages one behind the other, then one alone.
  for (const auto& [part, pushed, there] :
       {std::tuple{0, 10us, 24us}, std::tuple{1, 12us, 34us}, std::tuple{2, 50us, 64us}})
    wait_in_op(0, Op::dispatch_wait, part, kDispatch,
               {.pushed = pushed, .there = there, .wait_in = 100us, .wait_out = 100us}, 0us);
  const StepAccount& a = end();
  EXPECT_EQ(a.latency, 4us);
  EXPECT_EQ(a.busy[0], 30us);
  EXPECT_EQ(a.hidden, 24us + 14us);
}

TEST_F(LedgerTest, TheReportSaysWhatWasBooked) {
  begin();
  ledger_.begin_pass(9, {.order = 0, .parts = 2}, {Phase::prefill, 17, int64_t{1} << 40}, true, {});
  op(0, Op::gate, 10us);
  wait_in_op(0, Op::dispatch_wait, 0, kDispatch,
             {.pushed = 12us,
              .there = 15us,
              .wait_in = 10us,
              .wait_out = 15us,
              .in_bytes = 3000,
              .out_bytes = 5000},
             1us);
  op(1, Op::attn_core, 2us);
  op(2, Op::delta_core, 3us);
  const StepAccount& a = end();
  const StepReport r = a.report();
  EXPECT_EQ(r.is_valid, 1);
  EXPECT_EQ(PlanId{r.plan}, id_of({.order = 0, .parts = 2}));
  EXPECT_EQ(r.rows, 17u);
  EXPECT_EQ(r.kv_tokens, ~uint32_t{0});
  EXPECT_EQ(Phase{r.phase}, Phase::prefill);
  EXPECT_FLOAT_EQ(static_cast<float>(r.compute(Op::gate)), 10);
  EXPECT_FLOAT_EQ(static_cast<float>(r.compute(Op::attn_core)), 5);  // all layers
  EXPECT_FLOAT_EQ(r.waiting_us, 2);
  EXPECT_FLOAT_EQ(r.exposed_us, 3);
  EXPECT_FLOAT_EQ(r.dispatch_busy_us, 3);
  EXPECT_FLOAT_EQ(r.dispatch_kb, 5);
  EXPECT_FLOAT_EQ(r.step_us, 21);
  EXPECT_TRUE(a.is_trial);
  begin();
  go(5us);
  EXPECT_EQ(end().report().is_valid, 0);  // no rank had rows
}

TEST_F(LedgerTest, TheReportKnowsKindsOfLayersApart) {
  const std::array kinds = {AttentionKind::linear, AttentionKind::linear, AttentionKind::full};
  Ledger ledger({.num_layers = 3, .kinds = LayerKinds(kinds)}, clock_);
  ledger.begin_step(clock_.now());
  ledger.begin_pass(1, {}, {.rows = 4}, false);
  const auto book = [&](int layer, Op op, Duration d) {
    ledger.begin_op(layer, op, 0);
    go(d);
    ledger.end_op();
  };
  for (int layer = 0; layer < 3; ++layer) {
    book(layer, Op::attn_in, Duration(1us) * (1 << layer));
    book(layer, layer == 2 ? Op::attn_core : Op::delta_core, Duration(10us) * (1 << layer));
    book(layer, Op::gate, 100us);
  }
  const StepReport report = ledger.end_step(clock_.now()).report();
  EXPECT_EQ(report.compute(Op::attn_in, 0), 4);
  EXPECT_EQ(report.compute(Op::attn_in, 1), 3);
  EXPECT_EQ(report.compute(Op::attn_core, 0), 40);
  EXPECT_EQ(report.compute(Op::attn_core, 1), 30);
  EXPECT_EQ(report.compute(Op::gate), 300);
}

TEST_F(LedgerTest, NothingIsBookedWhileNoStepIsOpen) {
  op(0, Op::gate, 10us);
  waited(0, kDispatch, {.pushed = 0us, .there = 1us, .wait_in = 0us, .wait_out = 2us});
  {
    const Ledger::OtherWork other(&ledger_);
  }
  begin();
  pass();
  ledger_.begin_op(0, Op::gate, 0);
  go(10us);
  begin();  // the step begins again, as after the loss of a rank
  go(3us);
  const StepAccount& a = end();
  EXPECT_EQ(a.computed(), 0us);
  EXPECT_EQ(a.idle, 3us);
}

TEST_F(LedgerTest, SpansAreKeptForWhoWantsThem) {
  begin();
  pass();
  op(0, Op::gate, 10us);
  end();
  EXPECT_TRUE(ledger_.spans().empty());
  ledger_.keep_spans(true);
  begin();
  pass();
  op(2, Op::gate, 10us);
  wait_in_op(2, Op::dispatch_wait, kMaxParts + 2, kDispatch,
             {.pushed = 14us, .there = 16us, .wait_in = 10us, .wait_out = 16us, .in_bytes = 5},
             1us);
  end();
  std::vector<Kind> kinds;
  for (const LedgerSpan& span : ledger_.spans()) {
    kinds.push_back(span.kind);
    EXPECT_EQ(span.layer, 2);
    if (span.kind != Kind::op) {
      EXPECT_EQ(span.half, 1);
      EXPECT_EQ(span.part, 2);
    }
  }
  EXPECT_THAT(kinds, ::testing::ElementsAre(Kind::op, Kind::waiting, Kind::exposed, Kind::push,
                                            Kind::wire, Kind::op));
  const LedgerSpan& wire = ledger_.spans()[4];
  EXPECT_EQ(wire.end - wire.begin, 2us);
  EXPECT_EQ(wire.bytes, 5);
}

// Random steps: the sums are exact, and hidden is what a slow and simple count finds.
TEST_F(LedgerTest, RandomStepsAddUp) {
  std::mt19937 random(7);
  const auto draw = [&](int most) { return static_cast<int>(random() % most); };
  for (int round = 0; round < 300; ++round) {
    constexpr int kMax = 2000;
    std::array<bool, kMax> under_way{}, waited_then{};
    begin();
    pass();
    Duration waiting_or_exposed{};
    for (int i = 0; i < 24; ++i) {
      if (draw(3) == 0) go(Duration(draw(5)));
      const int layer = draw(3);
      if (draw(2) == 0) {
        op(layer, static_cast<Op>(draw(kNumOps)), Duration(draw(40)), draw(2));
        continue;
      }
      // A message that was pushed before now; it has arrived, or is waited for.
      const auto in = static_cast<int>(now().count());
      const int there = std::max(0, in - 60 + draw(90)), pushed = std::max(0, there - draw(50));
      const int out = std::max(in, there);
      wait_in_op(layer, Op::combine_wait, draw(kMaxLanes), draw(2) == 0 ? kDispatch : kCombine,
                 {.pushed = Duration(pushed),
                  .there = Duration(there),
                  .wait_in = Duration(in),
                  .wait_out = Duration(out)},
                 Duration(draw(3)));
      for (int t = pushed; t < there; ++t) under_way.at(t) = true;
      for (int t = in; t < out; ++t) waited_then.at(t) = true;
      waiting_or_exposed += Duration(out - in);
    }
    const StepAccount& a = end();
    int hidden = 0;
    for (int t = 0; t < kMax; ++t) hidden += under_way.at(t) && !waited_then.at(t);
    ASSERT_EQ(a.hidden, Duration(hidden)) << round;
    ASSERT_EQ(a.waiting + a.exposed, waiting_or_exposed) << round;
    ASSERT_EQ(sum(a), a.took) << round;
    Duration of_layers{}, hidden_of_layers{};
    for (const LayerAccount& layer : ledger_.layers()) {
      for (const Duration d : layer.compute) of_layers += d;
      of_layers += layer.exposed + layer.waiting;
      hidden_of_layers += layer.hidden;
    }
    ASSERT_EQ(of_layers, a.computed() + a.exposed + a.waiting) << round;
    ASSERT_EQ(hidden_of_layers, a.hidden) << round;
  }
}

}  // namespace
}  // namespace hocket
