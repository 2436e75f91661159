#include "engine/lockstep/cluster_network.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "cluster/proxy_testing.h"
#include "cluster/ranks_testing.h"
#include "compute/comm/ucx_testing.h"

namespace hocket {
namespace {

constexpr Duration kMaxWait = std::chrono::seconds(60);

// Rank 0 cannot connect to rank 1, since that says no address: all leave the epoch, and rank 1 is
// taken back later.
TEST(ClusterNetworkTest, ARankThatCannotBeReachedIsReported) {
  const UcxOptions ucx{.tls = "tcp"};
  if (const std::string why = testing::ucx_obstacle(ucx); !why.empty()) GTEST_SKIP() << why;
  log::set_level(log::Level::off);
  const ClusterOptions at{.init_addr = {"127.0.0.1", TestProxy::free_port()},
                          .token = "a token of sixteen"};
  const auto zero = ControlPlane::join(at, {.rank = 0, .num_ranks = 2});
  const auto one = ControlPlane::join(at, {.rank = 1, .num_ranks = 2});
  ASSERT_TRUE(zero && one);
  const auto network = ClusterNetwork::create(**zero, {.ucx = ucx, .terms = "the same"});
  ASSERT_TRUE(network) << describe(network.error());
  const auto ranks = (*network)->members(kMaxWait);
  ASSERT_TRUE(ranks && *ranks);
  const uint32_t epoch = (*zero)->view().epoch;
  ASSERT_TRUE((*one)->set(fmt::format("addr/{}/1", epoch),
                          "the same\n" + std::string(sizeof(Nonce), 'n') + "nowhere"));
  const auto link = (*network)->join(**ranks, kMaxWait);
  ASSERT_TRUE(link) << describe(link.error());
  EXPECT_FALSE(link->has_value());
  const auto next = (*zero)->wait_epoch(kMaxWait);
  ASSERT_TRUE(next) << describe(next.error());
  EXPECT_GT(next->epoch, epoch);
  EXPECT_TRUE(next->why.starts_with("rank 1 is missed by rank 0: rank 0 cannot reach rank 1"))
      << next->why;
  log::set_level(log::Level::info);
}

// Or the addresses of processes that ended would fill the store.
TEST(ClusterNetworkTest, AnAddressStaysOnlyWhileItsRankMeetsTheOthers) {
  const UcxOptions ucx{.tls = "tcp"};
  if (const std::string why = testing::ucx_obstacle(ucx); !why.empty()) GTEST_SKIP() << why;
  log::set_level(log::Level::off);
  const ClusterOptions at{.init_addr = {"127.0.0.1", TestProxy::free_port()},
                          .token = "a token of sixteen"};
  const auto zero = ControlPlane::join(at, {.rank = 0, .num_ranks = 2});
  const auto one = ControlPlane::join(at, {.rank = 1, .num_ranks = 2});
  ASSERT_TRUE(zero && one);
  constexpr Duration kLifetime = std::chrono::seconds(1);
  const auto network = ClusterNetwork::create(
      **zero, {.ucx = ucx, .terms = "the same", .address_lifetime = kLifetime});
  ASSERT_TRUE(network) << describe(network.error());
  const auto ranks = (*network)->members(kMaxWait);
  ASSERT_TRUE(ranks && *ranks);
  const std::string key = fmt::format("addr/{}/0", (*zero)->view().epoch);
  const auto meet = [&] {  // rank 1 does not come
    const auto link = (*network)->join(**ranks, kLifetime / 4);
    return link && !link->has_value();
  };
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(meet());
    EXPECT_TRUE((*one)->get(key)) << i;
  }
  EXPECT_TRUE(eventually([&] { return !(*one)->get(key); }));
  log::set_level(log::Level::info);
}

// It cannot be made without the token and both nonces, and holds for one direction of one epoch.
TEST(ClusterNetworkTest, TheSecretOfRowsDependsOnAllThatIsSaid) {
  Proof key{}, other_key{};
  other_key[0] = 1;
  Nonce a{}, b{};
  b[0] = 1;
  const uint64_t secret = secret_of_rows(key, 1, {0, a}, {1, b});
  EXPECT_EQ(secret, secret_of_rows(key, 1, {0, a}, {1, b}));
  EXPECT_NE(secret, secret_of_rows(other_key, 1, {0, a}, {1, b}));
  EXPECT_NE(secret, secret_of_rows(key, 2, {0, a}, {1, b}));
  EXPECT_NE(secret, secret_of_rows(key, 1, {1, b}, {0, a}));
  EXPECT_NE(secret, secret_of_rows(key, 1, {0, b}, {1, b}));
  EXPECT_NE(secret, secret_of_rows(key, 1, {0, a}, {1, a}));
}

}  // namespace
}  // namespace hocket
