// Tests several exchanges at once, of which the first complete one is taken, and the times that the
// watch hears, also where every rank has its own clock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "compute/comm/all_to_all.h"
#include "compute/comm/exchange_faults_testing.h"
#include "compute/comm/loopback.h"
#include "compute/comm/testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::expect_lost;
using ::testing::HasSubstr;
using testing::kStamp;
using testing::make;
using testing::on_ranks;
using testing::start;
using Kind = MessageKind;
using Time = LoopbackHub::Time;

constexpr std::array kLanes = {1, 4, 6};

AllToAll::Options three_lanes() {
  AllToAll::Options with{.epoch = 3};
  for (const int lane : kLanes) with.max_bytes.at(static_cast<size_t>(lane)) = {100, 100, 0};
  return with;
}

TimePoint at(Duration time) {
  return TimePoint(time);
}

class ArrivalNotes final : public ExchangeListener {
 public:
  void waits() override { text += "waits, "; }
  void goes_on() override { text += "goes on, "; }
  void finished(int lane, Kind kind, Stamp stamp, const ExchangeTimes& times) override {
    text += fmt::format("{} of step {} on lane {}, ", static_cast<int>(kind), stamp.step, lane);
    last = times;
  }
  std::string take() { return std::exchange(text, {}); }
  std::string text;
  ExchangeTimes last;
};

// Rank 1 sends on lanes 6, 1 and 4, so messages reach rank 0 in this sequence, while rank 0
// computes.
TEST(WaitAny, TakesThemAsTheyCome) {
  LoopbackHub hub(2, {.latency = 20us}, Time::virtual_time);
  on_ranks(hub, 2, [&](Transport& end) {
    ArrivalNotes notes;
    AllToAll::Options with = three_lanes();
    with.watch = &notes;
    auto exchange = make(end, with);
    const auto take = [&](std::vector<int> lanes, Duration since, Duration until) {
      const auto lane = exchange->wait_any(lanes, Kind::dispatch, kStamp);
      ASSERT_TRUE(lane.has_value()) << lane.error().message;
      EXPECT_EQ(notes.take(), since < until ? "waits, goes on, " : "");
      EXPECT_EQ(end.now(), at(until));
      hub.spend(end.rank(), 1us);  // not counted as waiting
      EXPECT_TRUE(exchange->wait(*lane, Kind::dispatch, kStamp).has_value());
      EXPECT_EQ(notes.take(), fmt::format("0 of step 7 on lane {}, ", *lane));
      EXPECT_EQ(notes.last.wait_in, at(since));
      EXPECT_EQ(notes.last.wait_out, at(until));
      EXPECT_EQ(notes.last.last_byte, exchange->times(*lane, Kind::dispatch).last_byte);
      exchange->release(*lane, Kind::dispatch);
    };
    if (end.rank() == 1) {
      for (const int lane : {6, 1, 4}) {
        hub.spend(1, 10us);
        EXPECT_TRUE(start(*exchange, Kind::dispatch, kStamp, lane).has_value());
      }
      take({4, 6, 1}, 30us, 30us);  // all are here: the first in the list
      EXPECT_EQ(exchange->times(4, Kind::dispatch).peers_posted, at(0us));
      EXPECT_EQ(exchange->times(4, Kind::dispatch).last_byte, at(20us));
      return;
    }
    for (const int lane : kLanes) {
      EXPECT_TRUE(start(*exchange, Kind::dispatch, kStamp, lane).has_value());
    }
    hub.spend(0, 5us);
    take({1, 4, 6}, 5us, 30us);
    EXPECT_EQ(exchange->times(6, Kind::dispatch).peers_posted, at(10us));
    take({1, 4}, 31us, 40us);
    EXPECT_EQ(exchange->times(1, Kind::dispatch).peers_posted, at(20us));
    hub.spend(0, 100us);
    take({4}, 141us, 141us);
    EXPECT_EQ(exchange->times(4, Kind::dispatch).last_byte, at(50us));
    EXPECT_EQ(exchange->times(4, Kind::dispatch).peers_posted, at(30us));
  });
}

class WaitAnyFails : public ::testing::TestWithParam<Time> {};
INSTANTIATE_TEST_SUITE_P(Comm, WaitAnyFails, ::testing::Values(Time::real, Time::virtual_time),
                         [](const auto& param) {
                           return param.param == Time::real ? "Real" : "Virtual";
                         });

TEST_P(WaitAnyFails, AStallNamesAllThatIsMissing) {
  LoopbackHub hub(3, {}, GetParam());
  std::atomic<int> num_left = 2;
  on_ranks(hub, 3, [&](Transport& end) {
    AllToAll::Options with = three_lanes();
    with.stall_timeout = end.rank() == 0 ? 100ms : 30s;
    auto exchange = make(end, with);
    EXPECT_TRUE(start(*exchange, Kind::dispatch, kStamp, 1).has_value());
    if (end.rank() == 2) {
      EXPECT_TRUE(start(*exchange, Kind::dispatch, kStamp, 4).has_value());
    }
    if (end.rank() != 0) {
      while (num_left > 0) end.wait(1ms), end.progress();
      return;
    }
    EXPECT_TRUE(start(*exchange, Kind::dispatch, kStamp, 4).has_value());
    EXPECT_TRUE(start(*exchange, Kind::dispatch, kStamp, 6).has_value());
    EXPECT_EQ(exchange->wait_any(kLanes, Kind::dispatch, kStamp), 1);
    EXPECT_TRUE(exchange->wait(1, Kind::dispatch, kStamp).has_value());
    const auto any = exchange->wait_any(std::array{6, 4}, Kind::dispatch, kStamp);
    ASSERT_FALSE(any.has_value());
    expect_lost(std::unexpected(any.error()),
                AllOf(HasSubstr("rank 1, rank 2 owe the dispatch of step 7, layer 2 (lane 6)"),
                      HasSubstr("; rank 1 owes the dispatch of step 7, layer 2 (lane 4)")));
    EXPECT_EQ(exchange->lost_peer(), 1);
    // The first error stays.
    expect_lost(exchange->wait(4, Kind::dispatch, kStamp), HasSubstr("lane 6"));
    num_left = 0;
  });
}

using WaitAnyDeathTest = ::testing::Test;
TEST(WaitAnyDeathTest, LanesThatAreNotOpenAreABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  LoopbackHub hub(1, {}, Time::real);
  const auto end = hub.join(0);
  auto exchange = make(*end, three_lanes());
  EXPECT_DEATH((void)start(*exchange, Kind::dispatch, kStamp, 0), "max_bytes");
  EXPECT_DEATH((void)start(*exchange, Kind::agree, kStamp, 1), "max_bytes");
  EXPECT_DEATH((void)exchange->wait_any(std::array{1}, Kind::dispatch, kStamp), "phase");
  EXPECT_DEATH((void)exchange->wait_any({}, Kind::dispatch, kStamp), "lanes");
}

// A transport whose clock is `ahead` of the hub's.
class OwnClock final : public Transport {
 public:
  OwnClock(Transport& end, Duration ahead) : end_(end), ahead_(ahead) {}
  int rank() const override { return end_.rank(); }
  int num_ranks() const override { return end_.num_ranks(); }
  TransportCaps caps() const override {
    TransportCaps caps = end_.caps();
    caps.one_clock = false;
    return caps;
  }
  void expect(const Channel& from, std::span<std::byte> slot) override { end_.expect(from, slot); }
  Result<std::optional<Arrival>> arrived(const Channel& from) override {
    auto arrival = end_.arrived(from);
    if (arrival && *arrival) (**arrival).when += ahead_;
    return arrival;
  }
  Result<void> send(const Channel& to, std::span<const std::span<const std::byte>> parts) override {
    return end_.send(to, parts);
  }
  Result<bool> sent(const Channel& to) override { return end_.sent(to); }
  void withdraw() override { end_.withdraw(); }
  bool progress() override { return end_.progress(); }
  void wait(Duration most) override { end_.wait(most); }
  void wake() override { end_.wake(); }
  TimePoint now() const override { return end_.now() + ahead_; }

 private:
  Transport& end_;
  const Duration ahead_;
};

// Ranks begin 3 us after each other, in a sequence that changes from step to step.
TEST(ExchangeTimes, WhenPeersPostedIsFoundWhateverTheirClocks) {
  constexpr int kRanks = 3;
  LoopbackHub hub(kRanks, {.latency = 20us}, Time::virtual_time);
  on_ranks(hub, kRanks, [&](Transport& inner) {
    const int rank = inner.rank();
    const Duration ahead = rank * 1000h - 500h;
    OwnClock end(inner, ahead);
    auto exchange = make(end, three_lanes());
    for (uint64_t step = 0; step < 20; ++step) {
      const Duration begin = 1ms * static_cast<int64_t>(step + 1);
      const auto begin_of = [&](int r) {
        return at(begin + 3us * ((r + static_cast<int>(step)) % kRanks));
      };
      hub.spend(rank, begin_of(rank) - inner.now());
      ASSERT_TRUE(start(*exchange, Kind::dispatch, {.step = step}, 4).has_value());
      ASSERT_TRUE(exchange->wait(4, Kind::dispatch, {.step = step}).has_value());
      TimePoint last{};
      for (int peer = 0; peer < kRanks; ++peer) {
        if (peer != rank) last = std::max(last, begin_of(peer));
      }
      const ExchangeTimes& times = exchange->times(4, Kind::dispatch);
      EXPECT_EQ(times.last_byte, last + 20us + ahead);
      // Before ranks have told each other their least travel times, the whole time counts as
      // waiting for peers.
      EXPECT_EQ(times.peers_posted, step == 0 ? times.last_byte : last + ahead);
      exchange->release(4, Kind::dispatch);
    }
  });
}

}  // namespace
}  // namespace hocket
