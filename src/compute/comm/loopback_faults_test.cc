// Tests messages over the loopback when ranks leave or are lost, and when links fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "compute/comm/loopback.h"
#include "compute/comm/testing.h"

namespace hocket::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Time = LoopbackHub::Time;
using Bytes = std::vector<std::byte>;

class BothClocksFaults : public ::testing::TestWithParam<Time> {};
INSTANTIATE_TEST_SUITE_P(LoopbackFaults, BothClocksFaults,
                         ::testing::Values(Time::real, Time::virtual_time), [](const auto& param) {
                           return param.param == Time::real ? "Real" : "Virtual";
                         });

// A rank's last message arrives after it left; a rank that waits for more learns that it is lost.
TEST_P(BothClocksFaults, LetTheLastWordsOfALeaverArrive) {
  LoopbackHub hub(2, {.latency = 2ms}, GetParam());
  on_ranks(hub, 2, [&](Transport& end) {
    if (end.rank() == 0) {
      const Bytes gone_soon(5, std::byte{9});
      ASSERT_TRUE(send(end, channel(1), gone_soon).has_value());
      return end.withdraw();
    }
    Bytes slot(5);
    end.expect(channel(0), slot);
    ASSERT_TRUE(receive(end, channel(0)).has_value());
    EXPECT_EQ(slot, Bytes(5, std::byte{9}));
    end.expect(channel(0), slot);
    const auto more = receive(end, channel(0));
    ASSERT_FALSE(more.has_value());
    EXPECT_EQ(more.error().code, ErrorCode::lost_rank);
    EXPECT_THAT(more.error().message, HasSubstr("rank 0 is lost"));
    EXPECT_FALSE(send(end, channel(0), slot).has_value());
  });
}

TEST_P(BothClocksFaults, TellAllThatARankIsLost) {
  LoopbackHub hub(3, {}, GetParam());
  on_ranks(hub, 3, [&](Transport& end) {
    if (end.rank() == 2) {
      hub.spend(2, 5us);
      hub.lose(2);
      end.wait(1s);
      const auto mine = send(end, channel(0), {});
      ASSERT_FALSE(mine.has_value());
      EXPECT_EQ(mine.error().message, "rank 2, this one, was lost");
      return;
    }
    Bytes slot(5);
    end.expect(channel(2), slot);
    const auto arrival = receive(end, channel(2));
    ASSERT_FALSE(arrival.has_value());
    EXPECT_THAT(arrival.error().message, HasSubstr("rank 2 is lost"));
    const int peer = 1 - end.rank();  // the other ranks continue
    end.expect(channel(peer), slot);
    ASSERT_TRUE(send(end, channel(peer), {}).has_value());
    EXPECT_TRUE(receive(end, channel(peer)).has_value());
    wait_until_sent(end, channel(peer));
  });
}

TEST_P(BothClocksFaults, LetARankComeBack) {
  LoopbackHub hub(2, {}, GetParam());
  for (int life = 0; life < 3; ++life) {
    on_ranks(hub, 2, [&](Transport& end) {
      const Bytes mine(4, std::byte(life));
      Bytes slot(4);
      const int peer = 1 - end.rank();
      end.expect(channel(peer), slot);
      ASSERT_TRUE(send(end, channel(peer), mine).has_value());
      ASSERT_TRUE(receive(end, channel(peer)).has_value());
      EXPECT_EQ(slot, mine);
      wait_until_sent(end, channel(peer));
      hub.lose(end.rank());
    });
  }
}

// The first message is under way when the cut comes and the second is sent into it; only the third
// arrives.
TEST_P(BothClocksFaults, LoseWhatIsSentThroughACut) {
  LoopbackHub hub(2, {.latency = 1ms}, GetParam());
  on_ranks(hub, 2, [&](Transport& end) {
    Bytes bytes(1);
    if (end.rank() == 0) {
      for (const int i : {1, 2, 3}) {
        if (i == 1 && GetParam() == Time::real) continue;  // a thread might be too slow
        if (i == 2) hub.cut(1, true);
        if (i == 3) hub.cut(1, false);
        bytes[0] = std::byte(i);
        ASSERT_TRUE(send(end, channel(1), bytes).has_value());
        hub.spend(0, 10us);
        if (i == 1) hub.cut(0, true);
        wait_until_sent(end, channel(1));
        if (i == 1) hub.cut(0, false);
      }
    } else {
      end.expect(channel(0), bytes);
      ASSERT_TRUE(receive(end, channel(0)).has_value());
      EXPECT_EQ(bytes[0], std::byte{3});
    }
  });
}

TEST(LoopbackFaults, AStalledLinkLosesNothing) {
  LoopbackHub hub(2, kLinks, Time::virtual_time);
  on_ranks(hub, 2, [&](Transport& end) {
    Bytes bytes(1000);
    if (end.rank() == 0) {
      hub.stall(0, 2s);
      ASSERT_TRUE(send(end, channel(1), bytes).has_value());
      wait_until_sent(end, channel(1));
    } else {
      end.expect(channel(0), bytes);
      EXPECT_EQ(receive(end, channel(0))->when, TimePoint(2s + 21us));
    }
  });
}

// Returns how many of num_messages arrive, and when the last one did [ns].
std::pair<int, int64_t> drizzle(LinkModel links, int num_messages) {
  LoopbackHub hub(2, links, Time::virtual_time);
  int num_here = 0;
  int64_t last = 0;
  on_ranks(hub, 2, [&](Transport& end) {
    Bytes bytes(100);
    for (int i = 0; end.rank() == 0 && i < num_messages; ++i) {
      ASSERT_TRUE(send(end, channel(1), bytes).has_value());
      wait_until_sent(end, channel(1));
    }
    while (end.rank() == 1) {
      end.expect(channel(0), bytes);
      const auto arrival = receive(end, channel(0));
      if (!arrival) break;  // the sender has left
      EXPECT_GE(ns(arrival->when), last);
      ++num_here, last = ns(arrival->when);
    }
  });
  return {num_here, last};
}

TEST(LoopbackFaults, DropsAndJitterFollowTheSeed) {
  LinkModel links = kLinks;
  links.drop = 0.25, links.jitter = 3us, links.seed = 11;
  const auto first = drizzle(links, 4000);
  EXPECT_EQ(drizzle(links, 4000), first);
  EXPECT_NEAR(first.first, 3000, 4 * 28);  // four sigma of the binomial
  const double mean_ns = static_cast<double>(first.second) / first.first;  // a drop takes no time
  EXPECT_NEAR(mean_ns, 20100 + 1500, 150);
  links.seed = 12;
  EXPECT_NE(drizzle(links, 4000), first);
  links.drop = 1;
  EXPECT_EQ(drizzle(links, 10).first, 0);
}

}  // namespace
}  // namespace hocket::testing
