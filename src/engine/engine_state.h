// The engine's inside: its ranks, and what lies between them and those who ask.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "compute/comm/loopback.h"
#include "engine/engine.h"
#include "engine/rank.h"
#include "engine/ranks/loopback_network.h"
#include "engine/watch/expert_stats.h"
#include "policy/routing/request_router.h"

namespace hocket {

// Members in the order of their making: ranks talk over networks, which are the hub's or the
// control plane's.
struct Engine::State {
  Result<void> load(Options& options);
  // The only rank; all ranks, as threads; one rank of a cluster.
  Result<void> load_alone(Options& options);
  Result<void> load_together(Options& options);
  Result<void> load_one_of_cluster(Options& options);
  Result<void> start_grammars(const Options& options);
  void make_profiler(const Runner& runner, const RankNetwork* network);
  Result<void> add_rank(std::unique_ptr<Runner> runner, const Options& options,
                        std::unique_ptr<RankNetwork> network = nullptr);
  std::vector<RankLoad> loads() const;
  std::optional<Error> lost() const;
  template <class Make>
  void tell_all(Make&& command);

  std::optional<LoopbackHub> hub;         // several ranks here
  SharedFate fate;                        // likewise
  std::unique_ptr<ControlPlane> control;  // ranks in other processes
  std::optional<RequestRouter> router;    // several ranks here
  std::mutex router_mutex;
  std::optional<ExpertStats> experts;  // none: a dense model
  std::shared_ptr<const StageForecast> forecast;
  std::shared_ptr<const OrderTable> orders;
  std::optional<Profiler> profiler;
  std::optional<RecentSteps> recent;
  std::vector<std::unique_ptr<Rank>> ranks;
  std::unique_ptr<GrammarCompiler> grammars;  // before the ranks, which it wakes, are gone; null:
                                              // none can be asked for
  EngineInfo info;
  std::string why_no_grammar;   // of info, which loading makes
  int max_queued_requests = 0;  // of all ranks together
  bool priorities = false;      // of requests: on
  std::atomic<bool> accepting{true}, threaded{false};
};

}  // namespace hocket
