// Tests forecasts of prefill apart from decode in cases with known answers.
#include "engine/forecast/split_forecast.h"

#include <gtest/gtest.h>

#include "base/source_dir_testing.h"

namespace hocket {
namespace {

constexpr MachineSpeed kSplitSpeed = {100e9, 2e12, 4e12};

Forecast split_forecast() {
  ForecastInput q{.total_bytes = int64_t{128} << 30,
                  .available_bytes = int64_t{128} << 30,
                  .num_workers = 8,
                  .speed = kSplitSpeed};
  q.settings.model.model_path = (source_dir() / "tests/configs/deepseek_v2_lite").string();
  auto found = forecast(q);
  EXPECT_TRUE(found.has_value()) << describe(found.error());
  EXPECT_TRUE(found->fits());
  return *std::move(found);
}

SplitPoint at(const Forecast& forecast, int num_hosts, int prompt_len, double interval_s,
              double link = 1e9) {
  const auto points = forecast_split(forecast, kSplitSpeed,
                                     {.num_hosts = num_hosts,
                                      .link_bytes_per_s = link,
                                      .prompt_lens = {prompt_len},
                                      .interval_s = {interval_s}});
  EXPECT_EQ(points.size(), 1u);
  return points.at(0);
}

TEST(SplitForecast, ItPaysForLongPromptsAndTightIntervals) {
  const Forecast f = split_forecast();
  const double step_s = f.decode_seconds(1, kSplitSpeed);
  const SplitPoint tight = at(f, 4, 8192, 1.5 * step_s);
  EXPECT_TRUE(tight.pays()) << tight.mixed_per_s << " -> " << tight.split_per_s;
  EXPECT_GE(tight.num_prefill, 1);
  EXPECT_LE(tight.num_prefill, 3);
}

// A host that computes both reads the weights once for both.
TEST(SplitForecast, ItDoesNotPayWhereStepsMayTakeLong) {
  const Forecast f = split_forecast();
  for (const int prompt_len : {256, 8192}) {
    const SplitPoint loose = at(f, 2, prompt_len, 100);
    EXPECT_FALSE(loose.pays()) << prompt_len;
    EXPECT_GT(loose.mixed_per_s, 0);
  }
}

TEST(SplitForecast, ALooserIntervalAMoreAndAFasterLinkNeverCost) {
  const Forecast f = split_forecast();
  SplitPoint before;
  for (const double interval_s : {0.02, 0.05, 0.1, 0.5, 2.0}) {
    const SplitPoint now = at(f, 4, 4096, interval_s);
    EXPECT_GE(now.mixed_per_s, before.mixed_per_s);
    EXPECT_GE(now.split_per_s, before.split_per_s);
    EXPECT_GE(at(f, 5, 4096, interval_s).split_per_s, now.split_per_s);
    EXPECT_LE(at(f, 4, 4096, interval_s, 1e6).split_per_s, now.split_per_s);
    before = now;
  }
}

TEST(SplitForecast, AnIntervalThatNoStepKeepsGivesNothing) {
  const Forecast f = split_forecast();
  const SplitPoint none = at(f, 2, 1024, 1e-9);
  EXPECT_EQ(none.mixed_per_s, 0);
  EXPECT_EQ(none.split_per_s, 0);
  EXPECT_FALSE(none.pays());
}

}  // namespace
}  // namespace hocket
