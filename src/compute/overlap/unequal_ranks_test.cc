#include "compute/overlap/unequal_ranks_testing.h"

#include <gtest/gtest.h>

#include "compute/overlap/served_testing.h"

namespace hocket {
namespace {

// Rows travel several times in parts, and a prompt's gate and up products come with its first wave.
class RepeatedRows final : public StageModel {
 public:
  StageTimes at(const Bucket& bucket) const override {
    StageTimes times = machine.at(bucket);
    times.dispatch.spread = times.combine.spread = bucket.phase == Phase::decode ? 1.7 : 1;
    times.up_first = bucket.phase == Phase::prefill;
    return times;
  }
  testing::StageMachine machine;
};

constexpr LayerCounts kUnequalLayers{
    .num_dense = 1, .num_moe = 6, .has_shared = true, .other_us = 300};

TEST(UnequalRanks, EqualOnesTakeWhatIsPredicted) {
  RepeatedRows model;
  const std::vector<std::vector<AlikeRanks>> services = {
      {{.count = 2}}, {{}, {}}, {{.count = 5}}, {{}, {.count = 2}, {.count = 61}}};
  for (const double gbit : {0.3, 4.0, 100.0})
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      model.machine.link_gbit = gbit;
      const Bucket bucket{phase, 24, 24 * 500};
      const SearchInput input{.model = model,
                              .orders = OrderTable::builtin(),
                              .layers = kUnequalLayers,
                              .bucket = bucket};
      for (const Candidate& candidate : search(input).candidates) {
        const double predicted_us = predict_plan(input, candidate.plan).step_us;
        for (const std::vector<AlikeRanks>& ranks : services)
          EXPECT_NEAR(UnequalRanks(model, kUnequalLayers, ranks).step_us(candidate.plan, bucket),
                      predicted_us, 1e-6 * predicted_us)
              << describe(candidate.plan, OrderTable::builtin());
      }
    }
}

TEST(UnequalRanks, TheSlowestSetsThePace) {
  const testing::StageMachine machine;
  const Bucket bucket{Phase::decode, 24, 24 * 500};
  const auto step_us = [&](const std::vector<AlikeRanks>& ranks) {
    return UnequalRanks(machine, kUnequalLayers, ranks).step_us({}, bucket);
  };
  const double even = step_us({{.count = 8}});
  EXPECT_GT(step_us({{.slowness = 2}, {.count = 7}}), 1.25 * even);
  // Seven ranks have fewer rows, but all wait for the eighth.
  EXPECT_GT(step_us({{.load = 2}, {.count = 7, .load = 6.0 / 7}}), 1.1 * even);
}

// Each rank reports its own times, and every one the transfer that lasts longest.
TEST(UnequalRanks, ReportsAreThoseOfEachRank) {
  const testing::StageMachine machine;
  const Bucket bucket{Phase::decode, 24, 24 * 500};
  const UnequalRanks ranks(machine, kUnequalLayers, {{.load = 2}, {.count = 3, .load = 2.0 / 3}});
  EXPECT_EQ(ranks.loads(), (std::vector{2.0, 2.0 / 3, 2.0 / 3, 2.0 / 3}));
  const std::vector<StepReport> reports = ranks.reports({}, bucket, 1000);
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_NEAR(reports[0].compute(Op::experts), 3 * reports[1].compute(Op::experts), 0.1);
  EXPECT_NEAR(reports[0].compute(Op::attn_in), reports[1].compute(Op::attn_in), 0.1);
  const double even_us = kUnequalLayers.num_moe * machine.at(bucket).dispatch.busy_us;
  EXPECT_NEAR(reports[0].dispatch_busy_us, 2 * even_us, 0.1);
  EXPECT_NEAR(reports[1].dispatch_busy_us, 10.0 / 9 * even_us, 0.1);
  for (const StepReport& report : reports) {
    EXPECT_NEAR(report.combine_busy_us, 2 * even_us, 0.1);
    EXPECT_EQ(report.step_us, 1000);
  }
}

}  // namespace
}  // namespace hocket
