#include "server/reply/client_pause.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

using std::chrono::microseconds;

TEST(ClientPause, GrowsUntilTheClientReads) {
  const TimePoint now = TimePoint() + std::chrono::seconds(5);
  ClientPause pause;
  for (int round = 0; round < 2; ++round) {
    for (const int us : {200, 400, 800, 1600, 3200, 6400, 12800, 20000, 20000}) {
      EXPECT_EQ(pause.begin(now), now + microseconds(us));
      EXPECT_EQ(pause.until(), now + microseconds(us));
    }
    pause.end();
  }
}

}  // namespace
}  // namespace hocket
