// Ranks that exchange over UCX, as threads of this process. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "compute/comm/ucx_transport.h"

namespace hocket::testing {

// The ways that are tested: within a host, and TCP.
inline UcxOptions ucx_shared_memory() {
  return {.tls = ucx_tls_of_one_host()};
}
inline UcxOptions ucx_tcp() {
  return {.tls = "tcp", .devices = "lo"};
}

// Why UCX cannot be tested here; empty if it can.
inline std::string ucx_obstacle(const UcxOptions& options) {
  const auto end = UcxTransport::create(0, 1, options);
  return end ? "" : end.error().message;
}

// Runs body(rank's end) on a thread for each rank, until all have returned. All are connected
// before the first runs; each end is destroyed by its thread when the body returns.
inline void on_ucx_ranks(int num_ranks, const UcxOptions& options,
                         const std::function<void(UcxTransport&)>& body) {
  std::vector<std::span<const std::byte>> addresses(static_cast<size_t>(num_ranks));
  std::barrier all_there(num_ranks);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto end = UcxTransport::create(rank, num_ranks, options);
      ASSERT_TRUE(end.has_value()) << end.error().message;
      addresses[static_cast<size_t>(rank)] = (*end)->address();
      all_there.arrive_and_wait();
      const auto connected = (*end)->connect(addresses);
      ASSERT_TRUE(connected.has_value()) << connected.error().message;
      all_there.arrive_and_wait();
      body(**end);
      end->reset();
    });
  }
}

}  // namespace hocket::testing
