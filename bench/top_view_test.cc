#include "bench/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hocket {
namespace {

using testing::HasSubstr;

MetricView view(std::string_view text) {
  auto samples = parse_metrics(text);
  EXPECT_TRUE(samples) << samples.error().message;
  return MetricView(samples ? *std::move(samples) : std::vector<MetricSample>());
}

constexpr const char* kNow = R"(# HELP hocket:num_running_reqs Requests
# TYPE hocket:num_running_reqs gauge
hocket:num_running_reqs{model_name="a \"b\"\\c",dp_rank="0"} 3
hocket:num_running_reqs{model_name="a \"b\"\\c",dp_rank="1"} 2
hocket:num_queue_reqs{dp_rank="0"} 7
hocket:token_usage{dp_rank="1"} 0.5
hocket:num_pages 100
hocket:num_free_pages 20
hocket:num_cached_pages 30
hocket:prompt_tokens_total 3000
hocket:cached_tokens_total{cache_source="device"} 1500
hocket:generation_tokens_total 500
hocket:num_requests_total 40
hocket:http_requests_total{status="200"} 41
hocket:http_requests_total{status="429"} 3
hocket:time_to_first_token_seconds_bucket{le="0.1"} 10
hocket:time_to_first_token_seconds_bucket{le="0.2"} 30
hocket:time_to_first_token_seconds_bucket{le="+Inf"} 40
hocket:seconds_since_last_step 12.5
)";
constexpr const char* kBefore = R"(hocket:prompt_tokens_total 1000
hocket:cached_tokens_total{cache_source="device"} 1000
hocket:generation_tokens_total 300
hocket:num_requests_total 30
hocket:time_to_first_token_seconds_bucket{le="0.1"} 10
hocket:time_to_first_token_seconds_bucket{le="0.2"} 10
hocket:time_to_first_token_seconds_bucket{le="+Inf"} 10
)";

TEST(MetricText, ReadsNamesLabelsAndValues) {
  const auto samples = parse_metrics(kNow);
  ASSERT_TRUE(samples);
  EXPECT_EQ(samples->front().name, "hocket:num_running_reqs");
  EXPECT_EQ(samples->front().label("model_name"), "a \"b\"\\c");
  EXPECT_EQ(view(kNow).sum("num_running_reqs"), 5);
  EXPECT_EQ(view(kNow).sum("num_running_reqs", "dp_rank", "1"), 2);
}

TEST(MetricText, RefusesWhatIsNone) {
  for (const char* text : {"x", "x{", "x{a=\"b} 1", "x{a=\"b\"}1", "x y", "{a=\"b\"} 1"})
    EXPECT_FALSE(parse_metrics(text)) << text;
}

TEST(MetricText, QuantilesAreOfWhatCameSince) {
  const MetricView now = view(kNow), before = view(kBefore);
  EXPECT_NEAR(now.quantile("time_to_first_token_seconds", 0.5, before), 0.175, 1e-9);
  EXPECT_NEAR(now.quantile("time_to_first_token_seconds", 0.5, MetricView({})), 0.15, 1e-9);
  EXPECT_NEAR(now.quantile("time_to_first_token_seconds", 0.99, before), 0.2, 1e-9);
  EXPECT_EQ(now.quantile("time_to_first_token_seconds", 0.5, now), 0);
  EXPECT_EQ(now.quantile("no_such_thing", 0.5, before), 0);
}

TEST(Top, TellsWhatHappenedInBetween) {
  const std::string page = draw_top(view(kNow), view(kBefore), {.title = "here", .seconds = 2});
  for (const char* part :
       {"here\nover the last 2.0 s", "5 running, 7 waiting | 5.0/s ended",
        "1000.0/s prompt, 25 % of them cached | 100.0/s generated", "50 % used, 30 % cached",
        "ttft           175.0", "200: 20.5/s  429: 1.5/s", "no step for 12.5 s"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_THAT(page, HasSubstr("\n0             3        7"));
  EXPECT_THAT(page, HasSubstr("\n1             2        0     50"));
  EXPECT_EQ(page.find('\x1b'), page.npos);
}

TEST(Top, TellsWhatCameSoFarAtFirst) {
  const std::string page = draw_top(view(kNow), MetricView({}), {.title = "here"});
  EXPECT_THAT(page, HasSubstr("since the start"));
  EXPECT_THAT(page, HasSubstr("3000 prompt, 50 % of them cached | 500 generated"));
  EXPECT_THAT(draw_top(view(kNow), MetricView({}), {.style = TopFrame::Style::color}),
              HasSubstr("\x1b[32m"));
}

TEST(Top, AnEmptyServerIsNoTrouble) {
  EXPECT_THAT(draw_top(MetricView({}), MetricView({}), {}), HasSubstr("0 running, 0 waiting"));
}

}  // namespace
}  // namespace hocket
