// Tests only: control planes of several ranks in one process, with a fifth of the real time limits.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cluster/control_plane.h"
#include "cluster/proxy_testing.h"

namespace hocket {

using std::chrono::milliseconds;

inline constexpr Duration kPatience = std::chrono::seconds(10);  // time limit of a wait in a test

// Returns true if `condition` became true in time.
inline bool eventually(const std::function<bool()>& condition, Duration most = kPatience) {
  const TimePoint until = RealClock().now() + most;
  while (!condition()) {
    if (RealClock().now() > until) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

using Plane = std::unique_ptr<ControlPlane>;

class Ranks : public testing::Test {
 protected:
  ClusterOptions options(uint16_t port) const {
    return {.init_addr = {"127.0.0.1", port},
            .token = kToken,
            .tls = tls_ ? TlsContext::create(kToken).value() : nullptr,
            .tolerate_ranks = tolerate_ranks_,
            .limits = {.heartbeat = milliseconds(50),
                       .suspect_after = milliseconds(200),
                       .lost_after = milliseconds(600),
                       .reconnect = milliseconds(150),
                       .pause = milliseconds(50)},
            .rank_wait = std::chrono::seconds(8),
            .redial = milliseconds(100),
            .handshake = milliseconds(500)};
  }
  Identity identity(int rank) const {
    return {.rank = rank,
            .num_ranks = num_ranks_,
            .host = fmt::format("h{}", rank),
            .version = "1",
            .model_hash = "m"};
  }
  // Starts rank 0 at `port`; 0 takes any free port.
  void start_rank_0(uint16_t port = 0) {
    auto made = ControlPlane::join(options(port), identity(0));
    ASSERT_TRUE(made) << made.error().message;
    planes_.resize(static_cast<size_t>(num_ranks_));
    planes_[0] = *std::move(made);
    port_ = planes_[0]->port();
  }
  void start(int rank, uint16_t port) {
    auto made = ControlPlane::join(options(port), identity(rank));
    ASSERT_TRUE(made) << made.error().message;
    planes_[static_cast<size_t>(rank)] = *std::move(made);
  }
  // Starts all ranks; rank `rank_behind_proxy` connects through the proxy. Each enters the first
  // epoch.
  void start_all(int num_ranks, int rank_behind_proxy = -1) {
    num_ranks_ = num_ranks;
    start_rank_0();
    proxy_ = std::make_unique<TestProxy>(port_);
    for (int rank = 1; rank < num_ranks; ++rank)
      start(rank, rank == rank_behind_proxy ? proxy_->port() : port_);
    enter_all();
  }
  void enter_all() {
    for (const Plane& plane : planes_) {
      const auto view = plane->wait_epoch(kPatience);
      ASSERT_TRUE(view) << view.error().message;
      ASSERT_TRUE(plane->enter(view->epoch));
      EXPECT_EQ(plane->aborted().load(), 0u);
    }
  }
  ControlPlane& plane(int rank) { return *planes_[static_cast<size_t>(rank)]; }
  // Succeeds if each of `ranks` leaves its epoch and names `lost` as the reason.
  testing::AssertionResult all_lost(int lost, const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      const bool knows = eventually(
          [&] { return plane(rank).aborted().load() != 0 && plane(rank).view().lost == lost; });
      if (!knows)
        return testing::AssertionFailure()
               << "rank " << rank << " believes: " << plane(rank).view().why;
    }
    return testing::AssertionSuccess();
  }

  static constexpr const char* kToken = "a token of sixteen";
  int num_ranks_ = 2, tolerate_ranks_ = 0;
  bool tls_ = false;
  uint16_t port_ = 0;
  // Declared before planes_, so that it outlives their connections.
  std::unique_ptr<TestProxy> proxy_;
  std::vector<Plane> planes_;
};

}  // namespace hocket
