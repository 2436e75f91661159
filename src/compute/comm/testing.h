// Ranks as threads. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "compute/comm/loopback.h"

namespace hocket::testing {

// One byte per nanosecond.
inline constexpr LinkModel kLinks{.bytes_per_s = 1e9, .latency = std::chrono::microseconds(20)};

inline int64_t ns(TimePoint time) {
  return time.time_since_epoch().count();
}

// Runs body(rank's end) on a thread for each rank, until all have returned. All ranks have joined
// before the first body runs; each thread destroys its end when the body returns.
inline void on_ranks(LoopbackHub& hub, int num_ranks, const std::function<void(Transport&)>& body) {
  std::vector<std::unique_ptr<Transport>> ends;
  for (int rank = 0; rank < num_ranks; ++rank) ends.push_back(hub.join(rank));
  std::vector<std::jthread> threads;
  for (std::unique_ptr<Transport>& end : ends) {
    threads.emplace_back([&body, mine = std::move(end)]() mutable {
      body(*mine);
      mine.reset();
    });
  }
}

inline Channel channel(int peer, int lane = 0, MessageKind kind = MessageKind::dispatch) {
  return {.peer = peer, .lane = lane, .kind = kind};
}

inline Result<void> send(Transport& end, const Channel& to, std::span<const std::byte> bytes) {
  const std::span<const std::byte> parts[] = {bytes};
  return end.send(to, parts);
}

// Waits for the message expected on a channel.
inline Result<Transport::Arrival> receive(Transport& end, const Channel& from) {
  for (;;) {
    end.progress();
    HOCKET_TRY(const auto arrival, end.arrived(from));
    if (arrival) return *arrival;
    end.wait(std::chrono::seconds(1));
  }
}

inline void wait_until_sent(Transport& end, const Channel& to) {
  for (;;) {
    end.progress();
    const auto is_sent = end.sent(to);
    ASSERT_TRUE(is_sent.has_value());
    if (*is_sent) return;
    end.wait(std::chrono::seconds(1));
  }
}

}  // namespace hocket::testing
