// Ranks that exchange over UCX, as threads of this process. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compute/comm/ucx_transport.h"

namespace hocket::testing {

// The ways that are tested: within one host, and TCP.
inline UcxOptions ucx_shared_memory() {
  return {.tls = ucx_tls_of_one_host()};
}
inline UcxOptions ucx_tcp() {
  return {.tls = "tcp", .devices = "lo"};
}

// Returns the reason if UCX cannot be tested here; empty if it can.
inline std::string ucx_obstacle(const UcxOptions& options) {
  const auto end = UcxTransport::create(0, 1, options);
  return end ? "" : end.error().message;
}

// The place where ranks that are threads of this process exchange their addresses.
class UcxAddressExchange {
 public:
  UcxAddressExchange(int num_ranks, const UcxOptions& options, int num_threads)
      : options_(options), addresses_(static_cast<size_t>(num_ranks)), all_there_(num_threads) {}
  // Sets the address of a rank in another process; to be called before join().
  void publish(int rank, std::vector<std::byte> address) {
    addresses_[static_cast<size_t>(rank)] = std::move(address);
  }
  // Returns the rank's connected end, once all threads have joined.   Thread: that of the rank.
  std::unique_ptr<UcxTransport> join(int rank) {
    auto end = UcxTransport::create(rank, static_cast<int>(addresses_.size()), options_);
    EXPECT_TRUE(end.has_value()) << end.error().message;
    HOCKET_CHECK(end.has_value());  // or the other threads would wait for ever
    const auto own = (*end)->address();
    publish(rank, {own.begin(), own.end()});
    all_there_.arrive_and_wait();
    const std::vector<std::span<const std::byte>> addresses(addresses_.begin(), addresses_.end());
    const auto connected = (*end)->connect(addresses);
    EXPECT_TRUE(connected.has_value()) << connected.error().message;
    HOCKET_CHECK(connected.has_value());
    all_there_.arrive_and_wait();
    return std::move(*end);
  }
  // All addresses; complete after a join().
  const std::vector<std::vector<std::byte>>& addresses() const { return addresses_; }

 private:
  const UcxOptions options_;
  std::vector<std::vector<std::byte>> addresses_;
  std::barrier<> all_there_;
};

// Runs body(rank's end) on a thread for each rank, until all have returned. All ranks are connected
// before the first body runs; each thread destroys its end when the body returns.
inline void on_ucx_ranks(int num_ranks, const UcxOptions& options,
                         const std::function<void(UcxTransport&)>& body) {
  UcxAddressExchange exchange(num_ranks, options, num_ranks);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto end = exchange.join(rank);
      body(*end);
    });
  }
}

}  // namespace hocket::testing
