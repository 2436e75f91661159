// Tests the settings of UCX, and that describe() names them.
#include "compute/comm/ucx_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "compute/comm/ucx_testing.h"

namespace hocket {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(UcxSettings, TcpIsEagerAndTheUsersVariablesGoFirst) {
  const std::string ours = " | TCP_CONN_NB=y | TCP_RX_SEG_SIZE=256k";
  EXPECT_EQ(ucx_settings({.tls = "tcp", .devices = "eth7"}).describe(),
            "tcp on eth7 | eager" + ours);
  EXPECT_EQ(ucx_settings({.tls = "posix,self"}).describe(),
            "posix,self | rendezvous for long messages");
  EXPECT_TRUE(ucx_settings({}).has_own_host);
  setenv("UCX_TLS", "tcp,posix", 1);
  setenv("UCX_RNDV_THRESH", "8k", 1);
  const UcxSettings by_user = ucx_settings({.tls = "posix,self"});
  EXPECT_EQ(by_user.describe(), "tcp,posix | rendezvous for long messages" + ours +
                                    " | UCX_TLS=tcp,posix by the environment"
                                    " | UCX_RNDV_THRESH=8k by the environment");
  EXPECT_TRUE(by_user.has_tcp && by_user.has_own_host);
  unsetenv("UCX_TLS");
  unsetenv("UCX_RNDV_THRESH");
}

TEST(UcxSettings, AllThatIsNotAsUcxComesIsSaid) {
  const UcxSettings tcp = ucx_settings({.tls = "tcp"});
  const char* here = std::getenv("UCX_TCP_RX_SEG_SIZE");
  const std::string before = here == nullptr ? "" : here;
  setenv("UCX_TCP_RX_SEG_SIZE", "64k", 1);
  setenv("UCX_TCP_SNDBUF", "4m", 1);
  EXPECT_THAT(tcp.describe(), AllOf(::testing::StartsWith("tcp | eager | TCP_CONN_NB=y | UCX_"),
                                    HasSubstr(" | UCX_TCP_RX_SEG_SIZE=64k by the environment"),
                                    HasSubstr(" | UCX_TCP_SNDBUF=4m by the environment")));
  unsetenv("UCX_TCP_SNDBUF");
  unsetenv("UCX_TCP_RX_SEG_SIZE");
  if (here != nullptr) setenv("UCX_TCP_RX_SEG_SIZE", before.c_str(), 1);
}

TEST(UcxSettings, WaysAndDevicesThatAreNotThereAreErrors) {
  if (const auto why = testing::ucx_obstacle({}); !why.empty()) GTEST_SKIP() << why;
  for (const UcxOptions& options :
       {UcxOptions{.tls = "pigeon"}, UcxOptions{.tls = "tcp", .devices = "eth77"}}) {
    const auto end = UcxTransport::create(0, 2, options);
    ASSERT_FALSE(end.has_value());
    EXPECT_EQ(end.error().code, ErrorCode::bad_value);
    EXPECT_THAT(end.error().message, AllOf(HasSubstr("UCX cannot start over " + options.tls),
                                           HasSubstr("network devices here: "), HasSubstr("lo")));
  }
  EXPECT_THAT(ucx_devices_here(), ::testing::Not(HasSubstr("eth77")));
}

}  // namespace
}  // namespace hocket
