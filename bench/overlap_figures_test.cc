#include "bench/overlap_figures.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hocket {
namespace {

constexpr StepTimings kRuns = {.serial_us = 150,
                               .compute_us = 100,
                               .split_us = 108,
                               .traffic_us = 113,
                               .exchange_us = 50,
                               .overlapped_us = 120,
                               .waiting_us = 3};

LedgerSpan span(LedgerSpan::Kind kind, int begin, int end) {
  return {.kind = kind, .begin = TimePoint(Duration(begin)), .end = TimePoint(Duration(end))};
}
using Kind = LedgerSpan::Kind;

PlayedPoint point(std::string clock, double automatic_us, double serial_us, double order_us) {
  PlayedPoint p{.clock = std::move(clock), .rows = 8, .link_gbit = 1};
  const auto add = [&](std::string order, double us) {
    StepTimings runs = kRuns;
    runs.serial_us = serial_us, runs.overlapped_us = us;
    p.rows_of_orders.push_back({.order = std::move(order), .runs = runs});
  };
  add("serial", serial_us), add("four-phase", order_us), add("auto", automatic_us);
  return p;
}

TEST(OverlapFigures, LossesAndWhatWasHiddenAddUpToTheStep) {
  const OverlapFigures f = figures_of(kRuns);
  EXPECT_DOUBLE_EQ(f.eta, 30.0 / 50);  // exchange is the smaller of compute and exchange
  EXPECT_DOUBLE_EQ(f.over_ideal, 1.2);
  EXPECT_DOUBLE_EQ(f.loss_split_us, 8);
  EXPECT_DOUBLE_EQ(f.loss_interference_us, 5);
  EXPECT_DOUBLE_EQ(f.loss_exposed_us, 4);
  EXPECT_DOUBLE_EQ(kRuns.compute_us + f.loss_split_us + f.loss_interference_us + f.loss_exposed_us +
                       f.loss_waiting_us,
                   kRuns.overlapped_us);
}

TEST(OverlapFigures, EtaIsOfTheExchangeOrOfComputeWhicheverIsLess) {
  StepTimings wire = kRuns;
  wire.exchange_us = 400, wire.serial_us = 500, wire.overlapped_us = 400;
  EXPECT_DOUBLE_EQ(figures_of(wire).eta, 1);  // all compute is hidden behind the wire
  wire.overlapped_us = 550;
  EXPECT_LT(figures_of(wire).eta, 0);  // overlap made the step slower
  EXPECT_EQ(figures_of({}).eta, 0);
}

TEST(OverlapFigures, ARatioErrsAsTheRoundsOfBothDo) {
  PlayedPoint p = point("real", 100, 150, 120);
  EXPECT_EQ(p.error_against("serial"), 0);  // without rounds the error is unknown
  EXPECT_EQ(p.best_forced()->order, "four-phase");
  for (OverlapResult& row : p.rows_of_orders) {
    row.rounds_us.assign(16, row.runs.overlapped_us);
    row.spread_us = 1.349 * 0.04 * row.runs.overlapped_us;  // a deviation of 4 %
  }
  EXPECT_NEAR(p.error_against("serial"), std::sqrt(2) * 1.2533 * 0.04 / 4, 1e-9);
}

TEST(OverlapFigures, CoverageCountsWorkOnceAndNoWaits) {
  // The wire is busy in 10..30 and 20..50, together 40. Work is 0..25 and 40..60; 42..45 waits.
  const LedgerSpan spans[] = {span(Kind::wire, 10, 30), span(Kind::wire, 20, 50),
                              span(Kind::op, 0, 25), span(Kind::op, 40, 60),
                              span(Kind::exposed, 42, 45)};
  EXPECT_DOUBLE_EQ(coverage_of(spans), (15.0 + 10 - 3) / 40);
  EXPECT_EQ(coverage_of({}), 0);
}

TEST(OverlapFigures, AutoIsComparedWithTheFastestOther) {
  const PlayedPoint p = point("virtual", 100, 150, 98);
  EXPECT_DOUBLE_EQ(p.auto_over_best(), 0.98);
  EXPECT_DOUBLE_EQ(p.auto_over_serial(), 1.5);
  const auto verdicts = verdicts_of(p);
  ASSERT_EQ(verdicts.size(), 1);  // splitting costs time here, so there is no goal for eta
  EXPECT_FALSE(verdicts[0].is_met);
  EXPECT_TRUE(verdicts_of(point("virtual", 100, 150, 99.5))[0].is_met);
}

TEST(OverlapFigures, TheBestOfAllOrdersCompetesWithAutoAlone) {
  PlayedPoint p = point("virtual", 100, 150, 99.5);
  EXPECT_EQ(p.auto_over_all(), 0);
  p.rows_of_orders.push_back({.order = std::string(kBestOfAll), .runs = {.overlapped_us = 97}});
  EXPECT_DOUBLE_EQ(p.auto_over_all(), 0.97);
  EXPECT_DOUBLE_EQ(p.auto_over_best(), 0.995);
  ASSERT_EQ(verdicts_of(p).size(), 2u);
  EXPECT_TRUE(verdicts_of(p)[0].is_met);
  EXPECT_FALSE(verdicts_of(p)[1].is_met);
}

// Two orders are equally fast: by chance, one of them is faster in even rounds, the other in odd
// rounds.
TEST(OverlapFigures, LuckInSomeRoundsMakesNoBest) {
  PlayedPoint p{.clock = "real"};
  const auto add = [&](const char* order, std::vector<double> rounds_us) {
    p.rows_of_orders.push_back({.order = order, .runs = {.overlapped_us = 100}});
    p.rows_of_orders.back().rounds_us = std::move(rounds_us);
  };
  add("one", {90, 110, 90, 110});
  add("other", {110, 90, 110, 90});
  add("auto", {100, 100, 100, 100});
  EXPECT_DOUBLE_EQ(p.auto_over_best(), 1.1);
  p.rows_of_orders[0].rounds_us = {80, 80, 80, 80};
  EXPECT_DOUBLE_EQ(p.auto_over_best(), 0.8);
}

TEST(OverlapFigures, EtaIsPromisedWhereSplittingIsFreeAndTheExchangeIsShort) {
  PlayedPoint p = point("virtual", 101, 150, 150);
  p.free_split = true;
  ASSERT_EQ(verdicts_of(p).size(), 2);
  EXPECT_TRUE(verdicts_of(p)[1].is_met);  // 49 of 50 hidden
  p.rows_of_orders[2].runs.exchange_us = 81;
  EXPECT_EQ(verdicts_of(p).size(), 1);
  p.rows_of_orders[2].runs.exchange_us = 50, p.rows = 1;  // one row has no halves
  EXPECT_EQ(verdicts_of(p).size(), 1);
}

TEST(OverlapFigures, ARealStepMayTakeTheTaxButNoMore) {
  PlayedPoint p = point("real", 115, 150, 116);
  p.is_between_hosts = true;
  p.tax_us = 10;
  ASSERT_EQ(verdicts_of(p).size(), 5);
  EXPECT_TRUE(verdicts_of(p)[2].is_met);  // 115 <= 1.05 x 110
  p.tax_us = 5;
  EXPECT_FALSE(verdicts_of(p)[2].is_met);
  p.link_gbit = 10;
  EXPECT_EQ(verdicts_of(p).size(), 2);
  EXPECT_FALSE(verdicts_of(point("real", 152, 150, 200))[1].is_met);  // slower than serial
}

TEST(OverlapFigures, AnswersAt1GbitHideMostAndPayHalfOfTheRecordedTax) {
  PlayedPoint p = point("real", 114, 150, 116);
  EXPECT_EQ(verdicts_of(p).size(), 3) << "ranks of one process share memory";
  p.is_between_hosts = true;
  p.tax_us = 21;  // compute is 100 us; the recorded tax of 8 rows is 42.5 %
  ASSERT_EQ(verdicts_of(p).size(), 5);
  EXPECT_TRUE(verdicts_of(p)[3].is_met);  // 36 of 50 hidden
  EXPECT_TRUE(verdicts_of(p)[4].is_met);
  EXPECT_NEAR(verdicts_of(p)[4].value, 0.21 / 0.425, 1e-9);
  p.tax_us = 22, p.rows_of_orders[2].runs.overlapped_us = 117;
  EXPECT_FALSE(verdicts_of(p)[3].is_met);
  EXPECT_FALSE(verdicts_of(p)[4].is_met);
  p.phase = Phase::prefill;
  EXPECT_EQ(verdicts_of(p).size(), 3);
  p.phase = Phase::decode, p.rows = 4;
  EXPECT_EQ(verdicts_of(p).size(), 3);
}

TEST(OverlapFigures, AGoalIsMissedByMoreThanTwoStandardErrors) {
  PlayedPoint p = point("real", 100, 98, 120);  // auto/serial is 0.98, and should be 0.99
  for (OverlapResult& row : p.rows_of_orders) row.runs.overlapped_us = 100;
  p.rows_of_orders[0].runs.overlapped_us = 98;
  const auto is_met = [&](double deviation) {
    for (OverlapResult& row : p.rows_of_orders) {
      row.rounds_us.assign(16, row.runs.overlapped_us);
      row.spread_us = 1.349 * deviation * row.runs.overlapped_us;
    }
    return verdicts_of(p)[1].is_met;
  };
  EXPECT_FALSE(is_met(0));
  EXPECT_FALSE(is_met(0.010));  // errors of 0.44 %, and of 0.53 %
  EXPECT_TRUE(is_met(0.012));
}

TEST(OverlapFigures, VirtualTimeAloneFails) {
  const PlayedPoint good = point("virtual", 100, 150, 99.5), bad = point("virtual", 100, 150, 98);
  EXPECT_FALSE(misses_virtual_goal({}));
  EXPECT_FALSE(misses_virtual_goal(std::vector{good, point("real", 152, 150, 98)}));
  EXPECT_TRUE(misses_virtual_goal(std::vector{good, bad}));
}

TEST(OverlapFigures, AFixedOrderMustLoseSomewhereAndWinNowhere) {
  std::vector<PlayedPoint> points = {point("real", 100, 150, 121), point("real", 100, 150, 99)};
  auto verdicts = order_verdicts_of(points);
  ASSERT_EQ(verdicts.size(), 1);
  EXPECT_EQ(verdicts[0].order, "four-phase");
  EXPECT_NEAR(verdicts[0].max_gain, 0.21, 1e-9);
  EXPECT_NEAR(verdicts[0].max_loss, 0.01, 1e-9);
  EXPECT_TRUE(verdicts[0].is_met);
  points.push_back(point("real", 100, 150, 97));
  EXPECT_FALSE(order_verdicts_of(points)[0].is_met);
  points = {point("real", 100, 150, 119)};
  EXPECT_FALSE(order_verdicts_of(points)[0].is_met);
}

}  // namespace
}  // namespace hocket
