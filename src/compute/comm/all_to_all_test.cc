// Tests the exchange between ranks, in real and in virtual time of the loopback.
#include "compute/comm/all_to_all.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/mix.h"
#include "compute/comm/exchange_testing.h"
#include "compute/comm/loopback.h"
#include "compute/comm/testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using testing::check;
using testing::CheckedExchange;
using testing::on_ranks;
using testing::two_halves;
using Kind = MessageKind;
using Bytes = std::vector<std::byte>;

class Clocks : public ::testing::TestWithParam<std::tuple<LoopbackHub::Time, int>> {
 protected:
  LoopbackHub::Time time() const { return std::get<0>(GetParam()); }
  int num_ranks() const { return std::get<1>(GetParam()); }
};

// Plays 250 steps of 10 layers and 2 lanes, each with a dispatch and a combine, and an agreement
// per step: 10,250 exchanges.
TEST_P(Clocks, BringWhatWasSent) {
  LoopbackHub hub(num_ranks(), {}, time());
  on_ranks(hub, num_ranks(), [](Transport& end) { two_halves(end, 250, 10); });
}

INSTANTIATE_TEST_SUITE_P(AllToAll, Clocks,
                         ::testing::Combine(::testing::Values(LoopbackHub::Time::real,
                                                              LoopbackHub::Time::virtual_time),
                                            ::testing::Values(1, 2, 3, 4)),
                         [](const auto& param) {
                           const bool is_real = std::get<0>(param.param) == LoopbackHub::Time::real;
                           return fmt::format("{}{}", is_real ? "Real" : "Virtual",
                                              std::get<1>(param.param));
                         });

// Rank 1 of three does nothing, and nobody waits for it.
TEST(AllToAll, SkipsAnAbsentRank) {
  LoopbackHub hub(3, {}, LoopbackHub::Time::virtual_time);
  on_ranks(hub, 3, [](Transport& end) {
    if (end.rank() == 1) return;
    AllToAll::Options options = testing::test_options();
    options.present.emplace();
    options.present->add(0);
    options.present->add(2);
    auto exchange = *AllToAll::create(end, options);
    EXPECT_EQ(exchange->num_ranks(), 3);
    EXPECT_FALSE(exchange->has(1));
    const int peer = 2 - end.rank();
    for (uint64_t step = 0; step < 3; ++step) {
      const std::array bytes = {static_cast<std::byte>(step), static_cast<std::byte>(end.rank())};
      const std::array<std::span<const std::byte>, 1> piece = {bytes};
      const std::vector<AllToAll::Parts> parts(3, AllToAll::Parts(piece));
      check(exchange->start(0, MessageKind::agree, {.step = step}, parts));
      check(exchange->wait(0, MessageKind::agree, {.step = step}));
      EXPECT_TRUE(exchange->from(0, MessageKind::agree, 1).empty());
      const auto came = exchange->from(0, MessageKind::agree, peer);
      ASSERT_EQ(came.size(), 2u);
      EXPECT_EQ(came[0], bytes[0]);
      EXPECT_EQ(came[1], static_cast<std::byte>(peer));
      exchange->release(0, MessageKind::agree);
    }
  });
}

// Two ranks, links of one byte per nanosecond and 20 us latency: what travels while a rank computes
// is hidden, what it waits for is exposed.
TEST(AllToAll, TellsWhatWasHidden) {
  LoopbackHub hub(2, {.bytes_per_s = 1e9, .latency = 20us}, LoopbackHub::Time::virtual_time);
  on_ranks(hub, 2, [&](Transport& end) {
    const Bytes bytes(936);  // 1000 bytes with its head
    const std::span<const std::byte> part[] = {bytes};
    const AllToAll::Parts parts[] = {part, part};
    auto made = AllToAll::create(end, {.max_bytes = on_lanes(2, {1000, 1000, 0})});
    ASSERT_TRUE(made.has_value());
    AllToAll& exchange = **made;
    hub.spend(end.rank(), end.rank() == 0 ? 3us : 8us);
    check(exchange.start(0, Kind::dispatch, {}, parts));
    check(exchange.start(1, Kind::dispatch, {}, parts));
    hub.spend(end.rank(), 10us);
    check(exchange.wait(1, Kind::dispatch, {}));
    check(exchange.wait(0, Kind::dispatch, {}));
    const auto at = [](int64_t ns) { return TimePoint(Duration(ns)); };
    const int64_t mine = end.rank() == 0 ? 3000 : 8000, peers = 11000 - mine;
    for (int lane = 0; lane < 2; ++lane) {
      const ExchangeTimes& times = exchange.times(lane, Kind::dispatch);
      EXPECT_EQ(times.start, at(mine));
      EXPECT_EQ(times.posted, at(mine));
      EXPECT_EQ(times.peers_posted, at(peers));
      EXPECT_EQ(times.last_byte, at(peers + 21000 + 1000 * lane));
      EXPECT_EQ(times.wait_in, at(lane == 1 ? mine + 10000 : peers + 22000));
      EXPECT_EQ(times.wait_out, at(peers + 22000));
      EXPECT_EQ(times.out_bytes, 936u);
      EXPECT_EQ(times.in_bytes, 936u);
    }
  });
}

// A rank without messages to send sleeps until a peer begins, or another thread wakes it.
TEST(AllToAll, ARankIsCalledByAPeer) {
  for (const auto time : {LoopbackHub::Time::real, LoopbackHub::Time::virtual_time}) {
    LoopbackHub hub(3, {.latency = 1ms}, time);
    on_ranks(hub, 3, [&](Transport& end) {
      auto made = AllToAll::create(end, testing::test_options());
      ASSERT_TRUE(made.has_value());
      CheckedExchange talker(**made, 0);
      for (uint64_t step = 0; step < 5; ++step) {
        if (end.rank() == static_cast<int>(step % 3)) {
          hub.spend(end.rank(), 3ms);
          EXPECT_FALSE((*made)->peer_started(0, Kind::agree));
        }
        while (end.rank() != static_cast<int>(step % 3) && !(*made)->peer_started(0, Kind::agree))
          end.wait(1h);
        check(talker.start(Kind::agree, {.step = step}));
        check(talker.finish(Kind::agree, {.step = step}));
      }
    });
  }
}

TEST(AllToAll, ALostPeerCallsToo) {
  LoopbackHub hub(2, {}, LoopbackHub::Time::real);
  on_ranks(hub, 2, [&](Transport& end) {
    auto made = AllToAll::create(end, testing::test_options());
    ASSERT_TRUE(made.has_value());
    if (end.rank() == 1) return hub.lose(1);
    while (!(*made)->peer_started(0, Kind::agree)) end.wait(1h);
    CheckedExchange talker(**made, 0);
    const auto started = talker.start(Kind::agree, {.step = 1});
    ASSERT_FALSE(started.has_value());
    EXPECT_THAT(started.error().message, ::testing::HasSubstr("rank 1"));
  });
}

TEST(AllToAll, AnybodyMayWakeARank) {
  for (const auto time : {LoopbackHub::Time::real, LoopbackHub::Time::virtual_time}) {
    LoopbackHub hub(1, {}, time);
    const auto end = hub.join(0);
    end->wake();
    end->wait(1h);  // returns, or the test never ends
    std::thread other([&] {
      std::this_thread::sleep_for(5ms);
      end->wake();
    });
    const TimePoint before = end->now();
    end->wait(1h);
    EXPECT_LE(end->now() - before, Duration(1h));
    other.join();
  }
}

// Returns all times of a rank over many steps of two halves that compute for a while, on busy
// links.
std::vector<TimePoint> trace_of(Transport& end, LoopbackHub& hub, bool is_disturbed) {
  std::vector<TimePoint> trace;
  auto made = AllToAll::create(end, testing::test_options());
  EXPECT_TRUE(made.has_value());
  CheckedExchange halves[2] = {CheckedExchange(**made, 0), CheckedExchange(**made, 1)};
  uint64_t draw = static_cast<uint64_t>(end.rank()) * 1000003;
  for (uint64_t step = 0; step < 200; ++step) {
    for (const Kind kind : {Kind::dispatch, Kind::combine}) {
      for (CheckedExchange& half : halves) {
        check(half.start(kind, {.step = step}));
        const uint64_t drawn = mix64(draw += kMixStep);
        if (is_disturbed && drawn % 7 == 0) std::this_thread::sleep_for(100us);
        if (is_disturbed && drawn % 3 == 0) std::this_thread::yield();
        if (drawn % 4 != 0) hub.spend(end.rank(), Duration((drawn >> 8) % 20000));
        if (drawn % 5 == 0) made->get()->progress();
      }
      for (int lane = 0; lane < 2; ++lane) {
        check(halves[lane].finish(kind, {.step = step}));
        const ExchangeTimes& t = (*made)->times(lane, kind);
        for (const TimePoint time :
             {t.start, t.posted, t.peers_posted, t.last_byte, t.wait_in, t.wait_out}) {
          trace.push_back(time);
        }
      }
    }
  }
  made->reset();
  return trace;
}

// The same run gives the same times, whichever way the host schedules threads.
TEST(AllToAll, VirtualTimesAreTheSameEveryTime) {
  constexpr int kRanks = 3;
  const LinkModel links{.bytes_per_s = 3e8, .latency = 5us, .jitter = 4us, .seed = 5};
  std::vector<std::vector<TimePoint>> traces[2];
  for (int run = 0; run < 2; ++run) {
    LoopbackHub hub(kRanks, links, LoopbackHub::Time::virtual_time);
    traces[run].resize(kRanks);
    on_ranks(hub, kRanks, [&](Transport& end) {
      traces[run][static_cast<size_t>(end.rank())] = trace_of(end, hub, run == 1);
    });
  }
  EXPECT_EQ(traces[0], traces[1]);
  EXPECT_EQ(traces[0][0].size(), 200u * 2 * 2 * 6);
  EXPECT_GT(traces[0][0].back(), TimePoint(1ms));
}

}  // namespace
}  // namespace hocket
