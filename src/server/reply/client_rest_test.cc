#include "server/reply/client_rest.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

using std::chrono::microseconds;

TEST(ClientRest, GrowsUntilTheClientReads) {
  const TimePoint now = TimePoint() + std::chrono::seconds(5);
  ClientRest rest;
  for (int round = 0; round < 2; ++round) {
    for (const int us : {200, 400, 800, 1600, 3200, 6400, 12800, 20000, 20000}) {
      EXPECT_EQ(rest.begin(now), now + microseconds(us));
      EXPECT_EQ(rest.until(), now + microseconds(us));
    }
    rest.end();
  }
}

}  // namespace
}  // namespace hocket
