// Tests the link model in virtual time, to the nanosecond, and what holds in real time too.
#include "compute/comm/loopback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "compute/comm/testing.h"

namespace hocket::testing {
namespace {

using namespace std::chrono_literals;
using Time = LoopbackHub::Time;
using Bytes = std::vector<std::byte>;

TEST(Loopback, OneMessageTakesItsLengthAndTheLatency) {
  LoopbackHub hub(2, kLinks, Time::virtual_time);
  on_ranks(hub, 2, [&](Transport& end) {
    Bytes bytes(1000, std::byte{7});
    if (end.rank() == 0) {
      hub.spend(0, 5us);
      ASSERT_TRUE(send(end, channel(1), bytes).has_value());
      EXPECT_FALSE(*end.sent(channel(1)));
      wait_until_sent(end, channel(1));
      EXPECT_EQ(ns(end.now()), 5000 + 1000 + 20000);
    } else {
      Bytes slot(2000);
      end.expect(channel(0), slot);
      const auto arrival = receive(end, channel(0));
      ASSERT_TRUE(arrival.has_value());
      EXPECT_EQ(arrival->num_bytes, 1000u);
      EXPECT_EQ(ns(arrival->when), 5000 + 1000 + 20000);
      EXPECT_EQ(ns(end.now()), 5000 + 1000 + 20000);
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), slot.begin()));
      EXPECT_EQ(slot[1000], std::byte{0});
    }
  });
}

TEST(Loopback, LanesShareALinkButDirectionsDoNot) {
  LoopbackHub hub(2, kLinks, Time::virtual_time);
  on_ranks(hub, 2, [&](Transport& end) {
    const Bytes bytes(1000);
    Bytes slots[2] = {Bytes(1000), Bytes(1000)};
    const int peer = 1 - end.rank();
    for (int lane = 0; lane < 2; ++lane) {
      end.expect(channel(peer, lane), slots[lane]);
      ASSERT_TRUE(send(end, channel(peer, lane), bytes).has_value());
    }
    EXPECT_EQ(ns(receive(end, channel(peer, 1))->when), 22000);
    EXPECT_EQ(ns(receive(end, channel(peer, 0))->when), 21000);
  });
}

// A small message may stand for a large one, but its head counts once.
TEST(Loopback, AMessageCountsAsManyTimesItsBytes) {
  LinkModel links = kLinks;
  links.bytes_scale = 2000.5;
  LoopbackHub hub(2, links, Time::virtual_time);
  on_ranks(hub, 2, [&](Transport& end) {
    const int peer = 1 - end.rank();
    for (const size_t size : {size_t{40}, size_t{64}, size_t{66}, size_t{164}}) {
      const Bytes bytes(size, std::byte{3});
      Bytes slot(200);
      const int64_t now = ns(end.now());
      end.expect(channel(peer), slot);
      ASSERT_TRUE(send(end, channel(peer), bytes).has_value());
      const auto arrival = receive(end, channel(peer));
      EXPECT_EQ(arrival->num_bytes, size);
      const int64_t modelled = size <= 64 ? static_cast<int64_t>(size) : size == 66 ? 4065 : 200114;
      EXPECT_EQ(ns(arrival->when) - now, 20000 + modelled);
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), slot.begin()));
    }
  });
}

// Three ranks send to one at the same instant: its link serves the lowest rank first, whichever
// thread was faster.
TEST(Loopback, AnInLinkServesEqualsByRank) {
  for (int slow = 1; slow < 4; ++slow) {
    LoopbackHub hub(4, kLinks, Time::virtual_time);
    on_ranks(hub, 4, [&](Transport& end) {
      Bytes slots[4] = {Bytes(1000), Bytes(1000), Bytes(1000), Bytes(1000)};
      if (end.rank() == slow) std::this_thread::sleep_for(5ms);
      if (end.rank() > 0) {
        ASSERT_TRUE(send(end, channel(0), slots[0]).has_value());
        wait_until_sent(end, channel(0));
        return;
      }
      for (int peer = 1; peer < 4; ++peer) end.expect(channel(peer), slots[peer]);
      for (int peer = 1; peer < 4; ++peer) {
        EXPECT_EQ(ns(receive(end, channel(peer))->when), 20000 + peer * 1000) << peer;
      }
    });
  }
}

// Rank 0's message was sent first, but waits behind a long one in its own out link.
TEST(Loopback, AnInLinkServesFirstWhatReachesItFirst) {
  LoopbackHub hub(3, kLinks, Time::virtual_time);
  on_ranks(hub, 3, [&](Transport& end) {
    Bytes big(10000), small(1000);
    if (end.rank() == 0) {
      ASSERT_TRUE(send(end, channel(1), big).has_value());
      ASSERT_TRUE(send(end, channel(2), small).has_value());
      wait_until_sent(end, channel(1));
      wait_until_sent(end, channel(2));
    } else if (end.rank() == 1) {
      end.expect(channel(0), big);
      hub.spend(1, 9500ns);
      ASSERT_TRUE(send(end, channel(2), small).has_value());
      EXPECT_EQ(ns(receive(end, channel(0))->when), 30000);
      wait_until_sent(end, channel(2));
    } else {
      Bytes other(1000);
      end.expect(channel(0), small);
      end.expect(channel(1), other);
      // Begins when rank 1's message has arrived.
      EXPECT_EQ(ns(receive(end, channel(0))->when), 31500);
      EXPECT_EQ(ns(receive(end, channel(1))->when), 30500);
    }
  });
}

TEST(Loopback, TimePassesByWaitingOnly) {
  LoopbackHub hub(2, {}, Time::virtual_time);
  on_ranks(hub, 2, [&](Transport& end) {
    for (int i = 0; i < 100; ++i) end.progress();
    EXPECT_EQ(ns(end.now()), 0);
    end.wait(end.rank() == 0 ? 7h : 300ns);
    EXPECT_EQ(ns(end.now()), end.rank() == 0 ? ns(TimePoint(7h)) : 300);
    if (end.rank() == 1) hub.spend(1, 10h);
  });
  EXPECT_EQ(hub.now(), TimePoint(10h + 300ns));
}

// Until its last byte has arrived, a message is the sender's memory: a change before then arrives
// too.
TEST(Loopback, AMessageIsReadWhenItArrives) {
  LoopbackHub hub(2, kLinks, Time::virtual_time);
  on_ranks(hub, 2, [&](Transport& end) {
    Bytes bytes(10, std::byte{1});
    if (end.rank() == 0) {
      ASSERT_TRUE(send(end, channel(1), bytes).has_value());
      hub.spend(0, 20us);
      bytes.assign(10, std::byte{2});
      hub.spend(0, 1us);
      bytes.assign(10, std::byte{3});
      EXPECT_TRUE(*end.sent(channel(1)));
    } else {
      end.expect(channel(0), bytes);
      ASSERT_TRUE(receive(end, channel(0)).has_value());
      EXPECT_EQ(bytes, Bytes(10, std::byte{2}));
    }
  });
}

class BothClocks : public ::testing::TestWithParam<Time> {};
INSTANTIATE_TEST_SUITE_P(Loopback, BothClocks, ::testing::Values(Time::real, Time::virtual_time),
                         [](const auto& param) {
                           return param.param == Time::real ? "Real" : "Virtual";
                         });

// One message is kept aside before it is expected; a second one waits on its way.
TEST_P(BothClocks, KeepOneEarlyMessageAChannel) {
  LoopbackHub hub(2, {}, GetParam());
  on_ranks(hub, 2, [&](Transport& end) {
    Bytes bytes(3);
    if (end.rank() == 0) {
      for (const int i : {1, 2}) {
        bytes.assign(3, std::byte(i));
        ASSERT_TRUE(send(end, channel(1), bytes).has_value());
        if (i == 1) wait_until_sent(end, channel(1));
      }
      end.wait(1ms);
      EXPECT_FALSE(*end.sent(channel(1)));
      ASSERT_TRUE(send(end, channel(1, 1), bytes).has_value());  // lets the other rank look
      wait_until_sent(end, channel(1));
    } else {
      end.expect(channel(0, 1), bytes);
      ASSERT_TRUE(receive(end, channel(0, 1)).has_value());
      for (const int i : {1, 2}) {
        end.expect(channel(0), bytes);
        ASSERT_TRUE(receive(end, channel(0)).has_value());
        EXPECT_EQ(bytes, Bytes(3, std::byte(i)));
      }
    }
  });
}

TEST_P(BothClocks, RefuseWhatIsLongerThanItsSlot) {
  LoopbackHub hub(2, {}, GetParam());
  on_ranks(hub, 2, [&](Transport& end) {
    const Bytes bytes(100, std::byte{1});
    for (int lane = 0; lane < 2; ++lane) {  // it is expected before it comes, and after
      if (end.rank() == 0) {
        ASSERT_TRUE(send(end, channel(1, lane), bytes).has_value());
        wait_until_sent(end, channel(1, lane));
        continue;
      }
      Bytes memory(100);
      if (lane == 1) end.wait(1ms);
      end.expect(channel(0, lane), std::span(memory).first(99));
      const auto arrival = receive(end, channel(0, lane));
      ASSERT_FALSE(arrival.has_value());
      EXPECT_EQ(arrival.error().code, ErrorCode::lost_rank);
      EXPECT_EQ(arrival.error().message, "rank 0 sent rank 1 100 bytes where 99 have room");
      EXPECT_EQ(memory, Bytes(100));
    }
  });
}

TEST(Loopback, LinksMayChangeTheirRate) {
  LoopbackHub hub(2, kLinks, Time::virtual_time);
  on_ranks(hub, 2, [&](Transport& end) {
    Bytes bytes(1000);
    for (int i = 0; i < 2; ++i) {
      if (end.rank() == 0) {
        if (i == 1) hub.set_links({.bytes_per_s = 1e7, .latency = 20us});
        ASSERT_TRUE(send(end, channel(1), bytes).has_value());
        wait_until_sent(end, channel(1));
      } else {
        end.expect(channel(0), bytes);
        EXPECT_EQ(ns(receive(end, channel(0))->when), i == 0 ? 21000 : 21000 + 120000);
      }
    }
  });
}

// In real time a message is not there before its time nor, on a machine that is awake, long after.
// Its arrival time is the model's, not the time at which a rank noticed it.
TEST(Loopback, RealTimeKeepsTheLatency) {
  LoopbackHub hub(2, {.bytes_per_s = 1e6, .latency = 3ms}, Time::real);
  TimePoint sent{};
  on_ranks(hub, 2, [&](Transport& end) {
    Bytes bytes(2000);  // 2 ms
    if (end.rank() == 0) {
      sent = end.now();
      ASSERT_TRUE(send(end, channel(1), bytes).has_value());
      wait_until_sent(end, channel(1));
      EXPECT_GE(end.now() - sent, 5ms);
    } else {
      end.expect(channel(0), bytes);
      const auto arrival = receive(end, channel(0));
      ASSERT_TRUE(arrival.has_value());
      EXPECT_GE(end.now(), arrival->when);
      EXPECT_GE(arrival->when - sent, 5ms);
      EXPECT_LT(arrival->when - sent, 2s);
    }
  });
}

TEST(Loopback, AWaitEndsInRealTimeToo) {
  LoopbackHub hub(1, {}, Time::real);
  const auto end = hub.join(0);
  const TimePoint before = end->now();
  end->wait(2ms);
  EXPECT_GE(end->now() - before, 2ms);
}

}  // namespace
}  // namespace hocket::testing
