// Tests how an exchange is given up from outside, and what its watch hears.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>

#include "compute/comm/all_to_all.h"
#include "compute/comm/exchange_faults_testing.h"
#include "compute/comm/loopback.h"
#include "compute/comm/testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::exchange_once;
using testing::expect_lost;
using ::testing::HasSubstr;
using testing::kStamp;
using testing::make;
using testing::on_ranks;
using testing::options;
using testing::start;
using Kind = MessageKind;
using Time = LoopbackHub::Time;

Result<void> void_of(const Result<int>& result) {
  if (!result) return fail(result.error());
  return {};
}

class ExchangeEnds : public ::testing::TestWithParam<Time> {};
INSTANTIATE_TEST_SUITE_P(Comm, ExchangeEnds, ::testing::Values(Time::real, Time::virtual_time),
                         [](const auto& param) {
                           return param.param == Time::real ? "Real" : "Virtual";
                         });

// An abort ends a wait at once if the rank is woken, else soon; in wait() and in wait_any().
TEST_P(ExchangeEnds, AnAbortEndsAWait) {
  for (const bool wakes : {true, false})
    for (const bool any : {false, true}) {
      LoopbackHub hub(2, {}, GetParam());
      std::atomic<uint32_t> abort = 0;
      std::atomic<Transport*> waiting = nullptr;
      std::atomic<int64_t> raised_ns = 0;
      on_ranks(hub, 2, [&](Transport& end) {
        AllToAll::Options with = options();
        with.abort = &abort;
        auto exchange = make(end, with);
        if (end.rank() == 1) {
          while (waiting == nullptr) end.progress(), end.wait(1ms);
          for (int i = 0; i < 20; ++i) end.progress(), end.wait(1ms);
          raised_ns = end.now().time_since_epoch().count();
          abort = 1;
          if (wakes) waiting.load()->wake();
          expect_lost(start(*exchange, Kind::agree), HasSubstr("the step was aborted"));
          EXPECT_EQ(exchange->lost_peer(), -1);
          while (abort == 1) end.wait(1ms), end.progress();
          return;
        }
        EXPECT_TRUE(start(*exchange, Kind::dispatch).has_value());
        waiting = &end;
        expect_lost(
            any ? void_of(exchange->wait_any(std::array{0}, Kind::dispatch, kStamp))
                : exchange->wait(0, Kind::dispatch, kStamp),
            AllOf(HasSubstr("the step was aborted"),
                  HasSubstr("rank 1 owes the dispatch of step 7, layer 2 (lane 0) to rank 0")));
        EXPECT_EQ(exchange->lost_peer(), -1);
        const Duration took = end.now() - TimePoint(Duration(raised_ns.load()));
        if (GetParam() == Time::virtual_time) {
          EXPECT_LE(took, wakes ? 0ms : 50ms);
        } else {
          EXPECT_LT(took, 10s);
        }
        abort = 2;
      });
    }
}

// A rank that gave up the step closes its end; the others must be told of the abort, not of that.
TEST_P(ExchangeEnds, AnAbortGoesBeforeThoseWhoLeftBecauseOfIt) {
  LoopbackHub hub(2, {}, GetParam());
  std::atomic<uint32_t> abort = 0;
  on_ranks(hub, 2, [&](Transport& end) {
    AllToAll::Options with = options();
    with.abort = &abort;
    auto exchange = make(end, with);
    if (end.rank() == 1) {
      abort = 1;
      return;  // its end is closed
    }
    while (!exchange->peer_started(0, Kind::agree) || abort == 0) end.wait(1ms);
    expect_lost(exchange_once(*exchange, Kind::agree), HasSubstr("was aborted"));
    EXPECT_EQ(exchange->lost_peer(), -1);
  });
}

class StartNotes final : public ExchangeListener {
 public:
  void started(int lane, Kind kind, Stamp stamp) override {
    text += fmt::format("{} of step {} on lane {}, ", static_cast<int>(kind), stamp.step, lane);
  }
  void waits() override { text += "waits, "; }
  void goes_on() override { text += "goes on, "; }
  std::string text;
};

// Rank 1 comes late to the first exchange and is first in the second; then it leaves.
TEST(ExchangeListener, TheWatchIsToldOfStartsAndOfWaits) {
  LoopbackHub hub(2, {.latency = 1ms}, Time::virtual_time);
  on_ranks(hub, 2, [&](Transport& end) {
    StartNotes notes;
    AllToAll::Options with = options();
    with.watch = &notes;
    auto exchange = make(end, with);
    hub.spend(end.rank(), end.rank() == 0 ? 1ms : 10ms);
    EXPECT_TRUE(start(*exchange, Kind::combine, kStamp, 1).has_value());
    EXPECT_EQ(notes.text, "1 of step 7 on lane 1, ");
    hub.spend(end.rank(), end.rank() == 0 ? 1ms : 3ms);
    EXPECT_TRUE(exchange->wait(1, Kind::combine, kStamp).has_value());
    exchange->release(1, Kind::combine);
    EXPECT_EQ(notes.text, end.rank() == 0 ? "1 of step 7 on lane 1, waits, goes on, "
                                          : "1 of step 7 on lane 1, ");
    if (end.rank() == 1) return;
    notes.text.clear();
    expect_lost(exchange_once(*exchange, Kind::agree), HasSubstr("rank 1 is lost"));
    EXPECT_EQ(notes.text, "2 of step 7 on lane 0, waits, goes on, ");
  });
}

}  // namespace
}  // namespace hocket
