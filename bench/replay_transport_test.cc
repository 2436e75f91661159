#include "bench/replay_transport.h"

#include <gtest/gtest.h>

#include <thread>

#include "compute/comm/all_to_all.h"
#include "compute/comm/loopback.h"

namespace hocket {
namespace {

using Mode = ReplayTransport::Mode;
constexpr size_t kBytes = 1000;
constexpr LinkModel kLink = {.bytes_per_s = 1e9, .latency = std::chrono::microseconds(20)};

// Two ranks that exchange a dispatch and a combine in each of two layers.
class Ranks {
 public:
  // Each message of a pass has `says` plus the layer as its first byte.
  struct Pass {
    Mode mode;
    int says;
  };
  // The first bytes of the messages that rank 0 received, and the times of its passes.
  struct Received {
    std::vector<std::vector<int>> words;  // [pass][message]
    std::vector<Duration> took;
    std::vector<size_t> num_sent;
  };

  static Received play(const std::vector<Pass>& passes) {
    LoopbackHub hub(2, kLink, LoopbackHub::Time::virtual_time);
    LoopbackHub traffic(2, kLink, LoopbackHub::Time::real);
    Received received;
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < 2; ++rank)
        threads.emplace_back([&, rank] {
          const auto end = hub.join(rank), other = traffic.join(rank);
          Received mine = play_rank(*end, *other, passes);
          if (rank == 0) received = std::move(mine);
        });
    }
    return received;
  }

 private:
  static Received play_rank(Transport& end, Transport& other, const std::vector<Pass>& passes) {
    ReplayTransport messages(end, &other);
    const auto exchange =
        *AllToAll::create(messages, {.max_bytes = on_lanes(1, {kBytes, kBytes, 0})});
    const int peer = 1 - end.rank();
    Received received;
    uint64_t step = 0;
    for (const Pass& pass : passes) {
      messages.begin_pass(pass.mode, ++step);
      const TimePoint begin = end.now();
      auto& words = received.words.emplace_back();
      for (uint16_t layer = 0; layer < 2; ++layer)
        for (const MessageKind kind : {MessageKind::dispatch, MessageKind::combine}) {
          std::vector<std::byte> bytes(kBytes);
          bytes[0] = static_cast<std::byte>(pass.says + layer);
          const std::span<const std::byte> piece[] = {bytes};
          const std::vector<AllToAll::Parts> parts(2, piece);
          EXPECT_TRUE(exchange->start(0, kind, {step, layer}, parts));
          EXPECT_TRUE(exchange->wait(0, kind, {step, layer}));
          words.push_back(static_cast<int>(exchange->from(0, kind, peer)[0]));
          exchange->release(0, kind);
        }
      received.took.push_back(end.now() - begin);
      EXPECT_TRUE(messages.end_pass());
      received.num_sent.push_back(messages.sent_messages().size());
    }
    return received;
  }
};

TEST(ReplayTransport, WhatWasRememberedIsThereAtOnceAndIsOfThisStep) {
  const auto received = Ranks::play({{Mode::record, 10}, {Mode::replay, 50}, {Mode::live, 90}});
  EXPECT_EQ(received.words[0], (std::vector{10, 10, 11, 11}));
  EXPECT_EQ(received.words[1], received.words[0]);  // although the ranks sent other bytes
  EXPECT_EQ(received.words[2], (std::vector{90, 90, 91, 91}));
  EXPECT_GT(received.took[0], 4 * kLink.latency);
  EXPECT_EQ(received.took[1], Duration{});
  EXPECT_EQ(received.took[2], received.took[0]);
  EXPECT_EQ(received.num_sent[2], 4);  // messages of the recorded pass
}

TEST(ReplayTransport, TrafficDelaysNobodyAndIsAllThereInTheEnd) {
  const auto received =
      Ranks::play({{Mode::record, 10}, {Mode::traffic, 0}, {Mode::traffic, 0}, {Mode::live, 90}});
  EXPECT_EQ(received.words[1], received.words[0]);
  EXPECT_EQ(received.words[2], received.words[0]);
  EXPECT_EQ(received.took[1], Duration{});
  EXPECT_EQ(received.words[3], (std::vector{90, 90, 91, 91}));
}

}  // namespace
}  // namespace hocket
