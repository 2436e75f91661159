// The loads of all ranks, as each said in its last vote, for the choice of a request's rank. Owner:
// Lockstep. Thread: engine; of() any.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "policy/routing/request_router.h"

namespace hocket {

class VotedLoads {
 public:
  explicit VotedLoads(int num_ranks) : loads_(static_cast<size_t>(num_ranks)) {}

  RankLoad of(int rank) const {
    const Load& load = loads_.at(static_cast<size_t>(rank));
    return {.takes_requests = load.takes_requests.load(std::memory_order_relaxed),
            .num_requests = load.num_requests.load(std::memory_order_relaxed),
            .num_tokens = load.num_tokens.load(std::memory_order_relaxed)};
  }
  // Negative numbers, which only a broken rank sends, count as 0.
  void note(int rank, const RankLoad& said) {
    set_takes_requests(rank, said.takes_requests);
    Load& load = loads_.at(static_cast<size_t>(rank));
    load.num_requests.store(std::max(0, said.num_requests), std::memory_order_relaxed);
    load.num_tokens.store(std::max(int64_t{0}, said.num_tokens), std::memory_order_relaxed);
  }
  void set_takes_requests(int rank, bool takes) {
    loads_.at(static_cast<size_t>(rank)).takes_requests.store(takes, std::memory_order_relaxed);
  }
  // Sets all loads to 0. A rank without rows has at most requests that just ended, and its next
  // vote may come much later.
  void forget() {
    for (Load& load : loads_) {
      load.num_requests.store(0, std::memory_order_relaxed);
      load.num_tokens.store(0, std::memory_order_relaxed);
    }
  }

 private:
  struct Load {
    std::atomic<bool> takes_requests{true};
    std::atomic<int> num_requests{0};
    std::atomic<int64_t> num_tokens{0};
  };

  std::vector<Load> loads_;  // [ranks]
};

}  // namespace hocket
