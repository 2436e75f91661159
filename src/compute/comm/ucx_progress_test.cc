// Tests what moves while a rank sleeps, and while it computes and calls no function of the
// transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "compute/comm/testing.h"
#include "compute/comm/ucx_testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using testing::channel;
using testing::on_ucx_ranks;
using testing::receive;
using testing::send;
using Bytes = std::vector<std::byte>;

class UcxProgress : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (const auto why = testing::ucx_obstacle(options()); !why.empty()) GTEST_SKIP() << why;
  }
  static UcxOptions options() {
    return GetParam() ? testing::ucx_tcp() : testing::ucx_shared_memory();
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, UcxProgress, ::testing::Values(false, true), [](const auto& param) {
  return std::string(param.param ? "Tcp" : "SharedMemory");
});

// An idle rank sleeps. The very first message reaches it, and its answer is the first one back: the
// connections are made while it sleeps.
TEST_P(UcxProgress, ASleeperIsReachedByTheFirstMessage) {
  on_ucx_ranks(2, options(), [](Transport& end) {
    const Bytes bytes(70'000, std::byte{3});
    Bytes slot(bytes.size());
    end.expect(channel(1 - end.rank()), slot);
    if (end.rank() == 0) {
      std::this_thread::sleep_for(50ms);
      ASSERT_TRUE(send(end, channel(1), bytes).has_value());
    }
    const TimePoint start = end.now();
    for (;;) {
      end.progress();
      const auto arrival = end.arrived(channel(1 - end.rank()));
      ASSERT_TRUE(arrival.has_value()) << arrival.error().message;
      if (*arrival) break;
      end.wait(30s);
    }
    EXPECT_LT(end.now() - start, 10s);
    EXPECT_EQ(slot, bytes);
    if (end.rank() == 1) {
      ASSERT_TRUE(send(end, channel(0), bytes).has_value());
    }
    testing::wait_until_sent(end, channel(1 - end.rank()));
  });
}

// After the first messages, a message leaves its sender although the receiver only computes.
TEST_P(UcxProgress, WhoComputesDoesNotHoldUpASender) {
  std::atomic<bool> is_sent = false;
  std::atomic<int> num_talked = 0;
  on_ucx_ranks(2, options(), [&](Transport& end) {
    const bool is_tcp = GetParam();
    const Bytes bytes(is_tcp ? 500'000 : 4'000, std::byte{5});
    Bytes slot(bytes.size());
    const int peer = 1 - end.rank();
    for (int i = 0; i < 20; ++i) {
      end.expect(channel(peer), slot);
      ASSERT_TRUE(send(end, channel(peer), bytes).has_value());
      ASSERT_TRUE(receive(end, channel(peer)).has_value());
      testing::wait_until_sent(end, channel(peer));
    }
    ++num_talked;
    while (num_talked < 2) end.wait(1ms), end.progress();
    if (end.rank() == 0) {
      ASSERT_TRUE(send(end, channel(1), bytes).has_value());
      const TimePoint start = end.now();
      bool done = false;
      while (!done && end.now() - start < 10s) {
        end.wait(1ms), end.progress();
        const auto sent = end.sent(channel(1));
        ASSERT_TRUE(sent.has_value()) << sent.error().message;
        done = *sent;
      }
      EXPECT_TRUE(done);
      is_sent = true;
    } else {
      end.expect(channel(0), slot);
      while (!is_sent) std::this_thread::sleep_for(1ms);  // without calls to the transport
      ASSERT_TRUE(receive(end, channel(0)).has_value());
    }
    ++num_talked;
    while (num_talked < 4) end.wait(1ms), end.progress();
  });
}

}  // namespace
}  // namespace hocket
