// Tests how addresses are read, written and told from names.
#include "cluster/socket.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

TEST(Socket, KnowsAddressesFromNames) {
  for (const char* address : {"10.0.0.1", "::1", "fe80::1%eth0"}) EXPECT_TRUE(is_address(address));
  for (const char* name : {"", "localhost", "10.0.0", "h0.example", "[::1]"})
    EXPECT_FALSE(is_address(name)) << name;
}

TEST(ClusterAddress, HostAndPortAreRead) {
  EXPECT_EQ(parse_host_port("h0:5000").value(), (HostPort{"h0", 5000}));
  EXPECT_EQ(parse_host_port("[::1]:5000").value(), (HostPort{"::1", 5000}));
  EXPECT_EQ(to_text({"::1", 5000}), "[::1]:5000");
  for (const char* text : {"", "h0", "h0:", ":5000", "h0:70000", "h0:5x", "::1:5000", "[]:1"})
    EXPECT_EQ(parse_host_port(text).error().code, ErrorCode::bad_value) << text;
  EXPECT_TRUE(resolve({"::1", 1})->front().is_loopback());
  EXPECT_TRUE(resolve({"127.9.9.9", 1})->front().is_loopback());
  EXPECT_TRUE(resolve({"::ffff:127.0.0.1", 1})->front().is_loopback());
  EXPECT_FALSE(resolve({"::ffff:192.0.2.1", 1})->front().is_loopback());
  EXPECT_FALSE(resolve({"192.0.2.1", 1})->front().is_loopback());
}

}  // namespace
}  // namespace hocket
