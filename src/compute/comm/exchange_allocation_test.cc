// Tests that an exchange allocates nothing after the first steps, in real and in virtual time.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <vector>

#include "base/count_allocations_testing.h"
#include "compute/comm/all_to_all.h"
#include "compute/comm/loopback.h"
#include "compute/comm/testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using Kind = MessageKind;
using Time = LoopbackHub::Time;

class ExchangeAllocation : public ::testing::TestWithParam<Time> {};

TEST_P(ExchangeAllocation, IsNone) {
  constexpr int kRanks = 3;
  LoopbackHub hub(kRanks, {.bytes_per_s = 1e9, .latency = 10us, .jitter = 5us}, GetParam());
  std::atomic<int> num_warm = 0;
  std::array<std::atomic<int64_t>, kRanks> made{};
  std::atomic<int64_t> at_start = -1;
  testing::on_ranks(hub, kRanks, [&](Transport& end) {
    const std::atomic<uint32_t> abort = 0;
    auto created =
        AllToAll::create(end, {.max_bytes = on_lanes(2, {5000, 5000, 64}), .abort = &abort});
    ASSERT_TRUE(created.has_value());
    AllToAll& exchange = **created;
    const std::vector<std::byte> bytes(5000);
    for (uint64_t step = 0; step < 300; ++step) {
      if (step == 20) {  // all ranks are warm before counting begins
        ++num_warm;
        while (num_warm < kRanks) end.wait(1us), end.progress();
        int64_t unset = -1;
        at_start.compare_exchange_strong(unset, num_allocations.load());
      }
      for (const Kind kind : {Kind::agree, Kind::dispatch, Kind::combine}) {
        for (int lane = 0; lane < 2; ++lane) {
          const size_t most = kind == Kind::agree ? 64 : 5000;
          const std::array part = {std::span<const std::byte>(bytes).first(step * 37 % (most + 1))};
          std::array<AllToAll::Parts, kRanks> parts;
          parts.fill(part);
          EXPECT_TRUE(exchange.start(lane, kind, {.step = step}, parts).has_value());
        }
        for (int lane = 1; lane >= 0; --lane) {
          EXPECT_TRUE(exchange.wait(lane, kind, {.step = step}).has_value());
          exchange.release(lane, kind);
        }
      }
    }
    made[static_cast<size_t>(end.rank())] = num_allocations.load();
    ++num_warm;
    // No rank ends before all are counted.
    while (num_warm < 2 * kRanks) end.wait(1us), end.progress();
    created->reset();
  });
  EXPECT_GT(at_start.load(), 0);
  for (const auto& count : made) EXPECT_EQ(count.load(), at_start.load());
}

INSTANTIATE_TEST_SUITE_P(Comm, ExchangeAllocation,
                         ::testing::Values(Time::real, Time::virtual_time), [](const auto& param) {
                           return param.param == Time::real ? "Real" : "Virtual";
                         });

}  // namespace
}  // namespace hocket
