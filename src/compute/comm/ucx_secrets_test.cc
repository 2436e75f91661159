// Tests that a rank over UCX hears only peers that know its secret, whoever else reaches its port.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "compute/comm/testing.h"
#include "compute/comm/ucx_testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using testing::channel;
using testing::send;
using Bytes = std::vector<std::byte>;
using Secret = UcxTransport::Secret;

class UcxSecrets : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (const auto why = testing::ucx_obstacle(options()); !why.empty()) GTEST_SKIP() << why;
    for (auto& end : ends_) {
      auto made = UcxTransport::create(&end == ends_.data() ? 0 : 1, 2, options());
      ASSERT_TRUE(made.has_value()) << made.error().message;
      end = *std::move(made);
    }
    connect(kVictim, {.in = 5, .out = 6}, kPeer);
    connect(kPeer, {.in = 6, .out = 5}, kVictim);
  }
  static UcxOptions options() {
    UcxOptions given = GetParam() ? testing::ucx_tcp() : testing::ucx_shared_memory();
    given.patience = 100ms;
    return given;
  }
  // Rank 0, rank 1, and one who says that it is rank 1.
  enum Who : uint8_t { kVictim, kPeer, kStranger };
  UcxTransport& end(Who who) { return *ends_[who]; }
  void connect(Who who, const Secret& secret, Who with) {
    const bool is_first = end(who).rank() == 0;
    std::array<Secret, 2> secrets;
    secrets[is_first ? 1 : 0] = secret;
    end(who).set_secrets(secrets);
    const std::array<std::span<const std::byte>, 2> addresses = {
        (is_first ? end(who) : end(with)).address(), (is_first ? end(with) : end(who)).address()};
    ASSERT_TRUE(end(who).connect(addresses).has_value());
  }
  void move(int rounds) {
    for (int i = 0; i < rounds; ++i)
      for (const auto& end : ends_)
        if (end) end->wait(1ms), end->progress();
  }
  // Sends one message of rank 1, and waits until it is there or cannot come any more.
  void say(Who who, const Bytes& bytes) {
    ASSERT_TRUE(send(end(who), channel(0), bytes).has_value());
    for (bool sent = false; !sent;) {
      move(1);
      const auto done = end(who).sent(channel(0));
      ASSERT_TRUE(done.has_value()) << done.error().message;
      sent = *done;
    }
    move(20);
  }
  // Returns whether rank 0 has received into `slot_`.
  bool has_heard() {
    const auto arrival = end(kVictim).arrived(channel(1));
    EXPECT_TRUE(arrival.has_value()) << arrival.error().message;
    return arrival && arrival->has_value();
  }

  std::array<std::unique_ptr<UcxTransport>, 3> ends_;
  Bytes slot_ = Bytes(1000);
  const Bytes true_ = Bytes(1000, std::byte{1}), false_ = Bytes(1000, std::byte{2});
};
INSTANTIATE_TEST_SUITE_P(Ways, UcxSecrets, ::testing::Values(false, true), [](const auto& param) {
  return std::string(param.param ? "Tcp" : "SharedMemory");
});

TEST_P(UcxSecrets, AStrangerIsNotHeardAndItsGoodbyeEndsNothing) {
  // It knows nothing, or the secret of the other direction, which it gets with a message for
  // rank 1.
  connect(kStranger, {.in = 5, .out = 6}, kVictim);
  end(kVictim).expect(channel(1), slot_);
  say(kStranger, false_);
  EXPECT_FALSE(has_heard());
  ends_[kStranger].reset();  // says goodbye as rank 1
  move(20);
  EXPECT_FALSE(has_heard());
  say(kPeer, true_);
  EXPECT_TRUE(has_heard());
  EXPECT_EQ(slot_, true_);
}

TEST_P(UcxSecrets, WhoKnowsTheSecretIsHeard) {
  connect(kStranger, {.in = 6, .out = 5}, kVictim);
  end(kVictim).expect(channel(1), slot_);
  say(kStranger, false_);
  EXPECT_TRUE(has_heard());
  EXPECT_EQ(slot_, false_);
}

TEST_P(UcxSecrets, EveryBitOfASecretCounts) {
  Secret nearly{.in = 6, .out = 5 ^ uint64_t{1} << (UcxTransport::kSecretBits - 1)};
  connect(kStranger, nearly, kVictim);
  end(kVictim).expect(channel(1), slot_);
  say(kStranger, false_);
  EXPECT_FALSE(has_heard());
  say(kPeer, true_);
  EXPECT_EQ(slot_, true_);
}

}  // namespace
}  // namespace hocket
