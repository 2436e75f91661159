#include "policy/routing/request_router.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

std::vector<TokenId> text(int first, int length) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < length; ++i) tokens.push_back(TokenId{first + i});
  return tokens;
}

std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::vector<RankLoad> kIdle(4);

TEST(RequestRouter, RoundRobinGoesAroundAndPassesOverTheLost) {
  RequestRouter router(3, {.policy = RoutingPolicy::round_robin});
  std::vector<RankLoad> loads(3);
  loads[0].num_tokens = 1000;  // round robin ignores loads
  std::vector<int> chosen;
  for (int i = 0; i < 6; ++i) chosen.push_back(router.choose({}, text(0, 9), loads).value());
  EXPECT_EQ(chosen, (std::vector{0, 1, 2, 0, 1, 2}));
  loads[1].takes_requests = false;
  for (int i = 0; i < 6; ++i) EXPECT_NE(router.choose({}, text(0, 9), loads).value(), 1);
}

TEST(RequestRouter, ShortestCountsTokens) {
  RequestRouter router(3, {.policy = RoutingPolicy::shortest});
  std::vector<RankLoad> loads(3);
  loads[0].num_tokens = 50;
  loads[1].num_tokens = 20;
  loads[2].num_tokens = 30;
  EXPECT_EQ(router.choose({}, text(0, 9), loads).value(), 1);
  loads[1].takes_requests = false;
  EXPECT_EQ(router.choose({}, text(0, 9), loads).value(), 2);
}

TEST(RequestRouter, CacheAwareFollowsTheBeginning) {
  RequestRouter router(4, {});
  const auto a = text(0, 256), b = text(1000, 256);
  const int home_a = router.choose({}, a, kIdle).value();
  const int home_b = router.choose({}, b, kIdle).value();
  EXPECT_NE(home_a, home_b);  // b is unknown, so the rank chosen longest ago takes it
  EXPECT_EQ(router.choose({}, joined(a, text(7000, 100)), kIdle).value(), home_a);
  EXPECT_EQ(router.choose({}, joined(b, text(8000, 100)), kIdle).value(), home_b);
  // In another namespace the same tokens match nothing.
  RequestRouter fresh(4, {});
  ASSERT_EQ(fresh.choose({}, a, kIdle).value(), 0);
  EXPECT_NE(fresh.choose(CacheNamespace(7), a, kIdle).value(), 0);
}

TEST(RequestRouter, ALittleInCommonIsNotEnough) {
  RequestRouter router(2, {.min_share = 0.5});
  const std::vector<RankLoad> loads(2);
  const auto shared = text(0, 64);
  ASSERT_EQ(router.choose({}, joined(shared, text(500, 400)), loads).value(), 0);
  EXPECT_EQ(router.choose({}, joined(shared, text(900, 400)), loads).value(), 1);
  // Both ranks have the shared part; the longer match wins.
  EXPECT_EQ(router.choose({}, joined(joined(shared, text(500, 400)), text(3, 5)), loads).value(),
            0);
}

TEST(RequestRouter, LoadGoesBeforePrefixes) {
  RequestRouter router(2, {.alike_requests = 4, .alike_ratio = 1.5});
  std::vector<RankLoad> loads(2);
  const auto a = text(0, 128);
  ASSERT_EQ(router.choose({}, a, loads).value(), 0);
  loads[0] = {.num_requests = 4, .num_tokens = 400};
  EXPECT_EQ(router.choose({}, a, loads).value(), 0);
  loads[0] = {.num_requests = 5, .num_tokens = 500};
  EXPECT_EQ(router.choose({}, a, loads).value(), 1);
  // Both ranks have the prompt, so the one with fewer tokens takes it.
  loads[0] = {.num_requests = 4, .num_tokens = 400};
  EXPECT_EQ(router.choose({}, a, loads).value(), 1);
  // Only rank 0 has b; loads are alike up to 1.5 times as many requests.
  const auto b = text(5000, 128);
  loads[0] = {};
  loads[1] = {.num_requests = 12, .num_tokens = 1200};
  ASSERT_EQ(router.choose({}, b, loads).value(), 0);
  loads[0] = {.num_requests = 18, .num_tokens = 1800};
  EXPECT_EQ(router.choose({}, b, loads).value(), 0);
  loads[0].num_requests = 19;
  EXPECT_EQ(router.choose({}, b, loads).value(), 1);
}

TEST(RequestRouter, ARankThatCameBackKnowsNothing) {
  RequestRouter router(2, {});
  std::vector<RankLoad> loads(2);
  const auto a = text(0, 128);
  ASSERT_EQ(router.choose({}, a, loads).value(), 0);
  loads[0].takes_requests = false;
  EXPECT_EQ(router.choose({}, a, loads).value(), 1);
  loads[0].takes_requests = true;
  router.forget(0);
  loads[1].num_tokens = 10;
  EXPECT_EQ(router.choose({}, a, loads).value(), 1);
}

TEST(RequestRouter, ALostRankHidesNobodyWhoKnowsLess) {
  RequestRouter router(3, {.min_share = 0.3});
  std::vector<RankLoad> loads(3);
  const auto a = text(0, 128);
  ASSERT_EQ(router.choose({}, a, loads).value(), 0);
  loads[0].takes_requests = false;
  ASSERT_EQ(router.choose({}, joined(text(0, 64), text(900, 64)), loads).value(), 1);
  EXPECT_EQ(router.choose({}, a, loads).value(), 1);
}

TEST(RequestRouter, NobodyThere) {
  RequestRouter router(2, {});
  std::vector<RankLoad> loads(2, {.takes_requests = false});
  const auto chosen = router.choose({}, text(0, 9), loads);
  ASSERT_FALSE(chosen.has_value());
  EXPECT_EQ(chosen.error().code, ErrorCode::lost_rank);
}

TEST(RequestRouter, ForgetsTheOldestAndAPromptsEndFirst) {
  RequestRouter router(4, {.block_tokens = 8, .max_blocks = 10});
  const auto a = text(0, 64);  // 8 blocks
  const int home = router.choose({}, a, kIdle).value();
  for (int i = 0; i < 3; ++i) {
    router.choose({}, text(1000 * (i + 1), 16), kIdle).value();
    EXPECT_LE(router.num_blocks(), 10u);
  }
  // The first four of the eight blocks are left.
  EXPECT_EQ(router.choose({}, text(0, 32), kIdle).value(), home);
}

TEST(RequestRouter, NamesAreChecked) {
  EXPECT_EQ(parse_routing_policy("cache-aware").value(), RoutingPolicy::cache_aware);
  const auto unknown = parse_routing_policy("longest");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_NE(unknown.error().fix.find("round-robin"), std::string::npos);
}

}  // namespace
}  // namespace hocket
