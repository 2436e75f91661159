// Ranks as threads, for tests. Tests only.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "compute/comm/loopback.h"

namespace hocket::testing {

// Runs body(rank's end) on a thread for each rank, until all have returned. All have joined before
// the first runs; each end is destroyed by its thread when the body returns.
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

}  // namespace hocket::testing
