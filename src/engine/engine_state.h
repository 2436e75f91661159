// The engine's inside: its ranks, and what lies between them and those who ask.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "compute/comm/loopback.h"
#include "engine/engine.h"
#include "engine/expert_stats.h"
#include "engine/rank.h"
#include "policy/routing/request_router.h"

namespace hocket {

// Members in the order of their making: ranks talk over the ends, which are the hub's.
struct Engine::State {
  Result<void> load(Options& options);
  Result<void> add_rank(std::unique_ptr<Runner> runner, const Options& options);
  std::vector<RankLoad> loads() const;
  template <class Make>
  void tell_all(Make&& command);

  std::optional<LoopbackHub> hub;  // several ranks only, as are the next three
  std::vector<std::unique_ptr<Transport>> ends;
  SharedFate fate;
  std::optional<RequestRouter> router;
  std::mutex router_mutex;
  std::optional<ExpertStats> experts;  // none: a dense model
  std::vector<std::unique_ptr<Rank>> ranks;
  EngineInfo info;
  int max_queued_requests = 0;  // of all ranks together
  bool priorities = false;      // of requests: on
  std::atomic<bool> accepting{true}, threaded{false};
};

}  // namespace hocket
