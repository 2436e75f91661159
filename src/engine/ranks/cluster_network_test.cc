#include "engine/ranks/cluster_network.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "cluster/test_proxy.h"
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
  ASSERT_TRUE((*one)->set(fmt::format("addr/{}/1", epoch), "the same\nnowhere"));
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

}  // namespace
}  // namespace hocket
