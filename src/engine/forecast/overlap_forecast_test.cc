// Tests forecasts of overlap in cases with known answers.
#include "engine/forecast/overlap_forecast.h"

#include <gtest/gtest.h>

#include "engine/plan/testing.h"

namespace hocket {
namespace {

using testing::choice_of;
using testing::cost_of;

std::vector<OverlapPoint> points(const char* folder, const std::vector<double>& links,
                                 int num_ranks = 2) {
  const ModelChoice choice = choice_of(folder);
  const ModelCost cost = cost_of(choice);
  OverlapForecastInput input{.choice = choice,
                             .cost = cost,
                             .speed = {100e9, 2e12, 4e12},
                             .num_ranks = num_ranks,
                             .decode_rows = {1, 64},
                             .prefill_rows = {2048}};
  for (const double gbit : links) input.links.push_back({gbit, 20, 0});
  return forecast_overlap(input);
}

void expect_possible(const char* folder, const OverlapPoint& point) {
  SCOPED_TRACE(fmt::format("{}: {} rows, {} Gbit/s: {}", folder, point.bucket.rows,
                           point.link.gbit_per_s, point.why));
  EXPECT_GE(point.gain(), 0);
  EXPECT_LE(point.gain(), 0.5);
  EXPECT_GE(point.step_us, point.lower_bound_us * (1 - 1e-9));
  EXPECT_GE(point.hidden, 0);
  EXPECT_LE(point.hidden, 1);
  EXPECT_FALSE(point.why.empty());
  EXPECT_EQ(point.gain() > 0, point.plan != Plan{});
}

TEST(OverlapForecast, BestPlansAreNeverWorseThanNoneAndNeverBetterThanPossible) {
  // Latent attention, delta nets beside attention, windows beside attention.
  for (const char* folder :
       {"configs/deepseek_v2_lite", "configs/qwen3_5_397b_a17b", "configs/mimo_v2_flash"}) {
    const auto all = points(folder, {0.2, 1, 10, 100});
    ASSERT_EQ(all.size(), 12);
    for (const OverlapPoint& point : all) expect_possible(folder, point);
  }
}

// Two halves pay if the exchange takes about as long as computing; not if it takes almost no time
// or almost all of it.
TEST(OverlapForecast, PromptsAreOverlappedWhereTheLinkIsAsSlowAsTheCores) {
  const auto all = points("configs/deepseek_v2_lite", {0.001, 1, 1e6});
  const auto prefill = [&](size_t link) { return all.at(3 * link); };
  EXPECT_GT(prefill(1).gain(), 0.1);
  EXPECT_EQ(kind_of(prefill(1).plan, OrderTable::builtin()), PlanKind::two_batch);
  EXPECT_GT(prefill(1).hidden, 0.5);
  EXPECT_LT(prefill(0).gain(), 0.1);
  EXPECT_LT(prefill(2).gain(), 0.02);
}

TEST(OverlapForecast, OneRankHasNothingToOverlap) {
  EXPECT_TRUE(points("configs/deepseek_v2_lite", {1}, 1).empty());
  EXPECT_TRUE(points("golden/qwen3", {1}).empty());
}

}  // namespace
}  // namespace hocket
