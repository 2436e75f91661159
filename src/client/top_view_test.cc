#include "client/top_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hocket {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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

// Returns the number of columns of each line; colours have none.
std::vector<size_t> widths(std::string_view page) {
  std::vector<size_t> found(1, 0);
  for (size_t i = 0; i < page.size(); ++i) {
    if (page[i] == '\x1b')
      i = page.find('m', i);
    else if (page[i] == '\n')
      found.push_back(0);
    else
      ++found.back();
  }
  found.pop_back();  // nothing follows the last line end
  return found;
}

TEST(Top, NothingIsWiderThanTheScreen) {
  const std::string long_title(300, 'x');
  for (const int columns : {1, 20, 80, 120, 200}) {
    const TopFrame frame{
        .title = long_title, .seconds = 2, .columns = columns, .style = TopFrame::Style::color};
    const std::string page = draw_top(view(kNow), view(kBefore), frame);
    for (const size_t width : widths(page)) EXPECT_LE(width, static_cast<size_t>(columns));
    EXPECT_EQ(page.rfind("\x1b[0m") > page.rfind("\x1b[31m"), true) << "a colour is ended";
  }
  const std::string page = draw_top(view(kNow), view(kBefore), {.title = "here", .columns = 80});
  EXPECT_THAT(page, HasSubstr("] 50 % used, 30 % cached prefixes, of 100\n"));
}

TEST(Top, OfManyRanksThoseAreShownThatHaveRoom) {
  std::string text(kNow);
  for (int rank = 2; rank < 40; ++rank)
    text += "hocket:num_running_reqs{dp_rank=\"" + std::to_string(rank) + "\"} 1\n";
  const auto drawn = [&](int rows) { return draw_top(view(text), view(kBefore), {.rows = rows}); };
  EXPECT_EQ(widths(drawn(24)).size(), 24u);
  EXPECT_THAT(drawn(24), HasSubstr("\n1             2"));
  EXPECT_THAT(drawn(24), HasSubstr(" more ranks\n\nHTTP"));
  EXPECT_THAT(drawn(24), HasSubstr("no step for"));
  EXPECT_THAT(drawn(0), HasSubstr("\n39            1"));
  EXPECT_THAT(drawn(100), Not(HasSubstr("more ranks")));
  EXPECT_EQ(widths(drawn(5)).size(), 5u);
}

TEST(Top, WhatDidNotHappenTookNoTime) {
  EXPECT_THAT(draw_top(view(kNow), view(kNow), {.seconds = 2}),
              HasSubstr("ttft               -         -         -"));
}

TEST(Top, AnEmptyServerIsNoTrouble) {
  EXPECT_THAT(draw_top(MetricView({}), MetricView({}), {}), HasSubstr("0 running, 0 waiting"));
}

}  // namespace
}  // namespace hocket
