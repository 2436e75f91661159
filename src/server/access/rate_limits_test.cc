// Limits in exact time: the clock moves only when the test says so.
#include "server/access/rate_limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/clock_testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;

std::string header(const RateLimits::Admission& admission, std::string_view name) {
  for (const auto& [key, value] : admission.headers)
    if (key == name) return value;
  return "";
}

class RateLimitsTest : public testing::Test {
 protected:
  std::shared_ptr<FakeClock> clock_ = std::make_shared<FakeClock>();
  RateLimits limits_{clock_};
};

TEST_F(RateLimitsTest, WithoutLimitsNothingIsCounted) {
  const auto admission = limits_.begin({.name = "ann"});
  EXPECT_FALSE(admission.refusal);
  EXPECT_EQ(admission.meter, nullptr);
  EXPECT_TRUE(admission.headers.empty());
}

TEST_F(RateLimitsTest, RequestsComeBackEvenly) {
  const Principal ann{.name = "ann", .limits = {.requests_per_minute = 6}};
  for (int i = 0; i < 6; ++i) {
    const auto admission = limits_.begin(ann);
    ASSERT_FALSE(admission.refusal) << i;
    EXPECT_EQ(header(admission, "x-ratelimit-limit-requests"), "6");
    EXPECT_EQ(header(admission, "x-ratelimit-remaining-requests"), std::to_string(5 - i));
  }
  auto refused = limits_.begin(ann);
  ASSERT_TRUE(refused.refusal);
  EXPECT_EQ(refused.refusal->code, ErrorCode::rate_limited);
  EXPECT_EQ(header(refused, "Retry-After"), "10");
  EXPECT_EQ(header(refused, "x-ratelimit-reset-requests"), "60.000s");
  // Each principal has its own limits.
  EXPECT_FALSE(limits_.begin({.name = "bob", .limits = {.requests_per_minute = 6}}).refusal);
  clock_->advance(9s);
  EXPECT_TRUE(limits_.begin(ann).refusal);
  clock_->advance(1s);
  EXPECT_FALSE(limits_.begin(ann).refusal);
  EXPECT_TRUE(limits_.begin(ann).refusal);
  clock_->advance(1h);  // the bucket never holds more than one minute's worth
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(limits_.begin(ann).refusal);
  EXPECT_TRUE(limits_.begin(ann).refusal);
}

TEST_F(RateLimitsTest, TokensAreTakenAsTheyComeAndMayBeOwed) {
  const Principal ann{.name = "ann", .limits = {.tokens_per_minute = 60}};
  auto first = limits_.begin(ann);
  ASSERT_TRUE(first.meter);
  first.meter->take_tokens(90);
  const auto refused = limits_.begin(ann);
  ASSERT_TRUE(refused.refusal);
  EXPECT_EQ(header(refused, "Retry-After"), "31");  // the bucket holds -30 and needs 1
  EXPECT_EQ(header(refused, "x-ratelimit-remaining-tokens"), "0");
  clock_->advance(31s);
  EXPECT_FALSE(limits_.begin(ann).refusal);
}

TEST_F(RateLimitsTest, ARequestIsUnderWayUntilItsMeterEnds) {
  const Principal ann{.name = "ann", .limits = {.concurrency = 2}};
  auto one = limits_.begin(ann);
  const auto two = limits_.begin(ann);
  EXPECT_EQ(header(two, "x-ratelimit-remaining-concurrency"), "0");
  const auto refused = limits_.begin(ann);
  ASSERT_TRUE(refused.refusal);
  EXPECT_EQ(refused.meter, nullptr);
  EXPECT_EQ(header(refused, "Retry-After"), "1");
  one.meter->end();
  one.meter->end();  // the second call has no effect
  auto three = limits_.begin(ann);
  EXPECT_FALSE(three.refusal);
  EXPECT_TRUE(limits_.begin(ann).refusal);
  three.meter.reset();  // the destructor ends it too
  EXPECT_FALSE(limits_.begin(ann).refusal);
}

TEST_F(RateLimitsTest, ARefusedRequestTakesNothing) {
  const Principal ann{.name = "ann", .limits = {.requests_per_minute = 2, .concurrency = 1}};
  auto one = limits_.begin(ann);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(limits_.begin(ann).refusal);
  one.meter->end();
  EXPECT_FALSE(limits_.begin(ann).refusal);
}

}  // namespace
}  // namespace hocket
