#include "server/ranks/peer_directory.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "cluster/ranks_testing.h"

namespace hocket {
namespace {

using PeerDirectoryTest = Ranks;

TEST_F(PeerDirectoryTest, AnAddressIsPublishedBeforeAnyoneMeetsTheRank) {
  start_all(3);
  PeerDirectory first(plane(0), {.host = "127.0.0.1", .port = 7000}, "key-0");
  const auto told = plane(1).get("http/0");
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_EQ(*told, plane(0).self().boot_id + " 127.0.0.1:7000 key-0");
  // Rank 1 publishes none: ranks behind it are found all the same.
  const PeerDirectory last(plane(2), {.host = "127.0.0.1", .port = 7002}, "key-2");
  EXPECT_TRUE(eventually([&] { return first.endpoint(plane(2).self()).has_value(); }));
  EXPECT_TRUE(eventually([&] { return last.endpoint(plane(0).self()).has_value(); }));
  EXPECT_FALSE(first.endpoint(plane(1).self()));
  const PeerDirectory late(plane(1), {.host = "127.0.0.1", .port = 7001}, "key-1");
  EXPECT_TRUE(eventually([&] { return first.endpoint(plane(1).self()).has_value(); }));
  first.forget(2);
  EXPECT_TRUE(eventually([&] { return first.endpoint(plane(2).self()).has_value(); }));
}

TEST_F(PeerDirectoryTest, AnAddressThatCannotBeUsedIsReportedOnce) {
  start_all(2);
  ASSERT_TRUE(plane(1).set("http/1", plane(1).self().boot_id + " no-port key-1"));
  testing::internal::CaptureStderr();
  {
    const PeerDirectory book(plane(0), {.host = "127.0.0.1", .port = 7000}, "key-0");
    std::this_thread::sleep_for(milliseconds(1300));  // it is tried again after 1 s
  }
  log::flush();
  const std::string logged = testing::internal::GetCapturedStderr();
  const std::string line = "the address of rank 1 (h1) cannot be used here";
  EXPECT_NE(logged.find(line), std::string::npos);
  EXPECT_EQ(logged.find(line), logged.rfind(line)) << logged;
}

}  // namespace
}  // namespace hocket
