// The engine's state: its ranks, and the parts between them and the callers.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "compute/comm/loopback.h"
#include "engine/engine.h"
#include "engine/rank_loop.h"
#include "engine/ranks/loopback_network.h"
#include "engine/watch/expert_stats.h"
#include "policy/routing/request_router.h"

namespace hocket {

// The members stand in the order in which they are made: ranks use networks, and these belong to
// the hub or the control plane.
struct Engine::State {
  Result<void> load(Options& options);
  // Load the only rank; all ranks, as threads; one rank of a cluster.
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

  std::optional<LoopbackHub> hub;         // if several ranks are here
  SharedFate fate;                        // if several ranks are here
  std::unique_ptr<ControlPlane> control;  // if ranks are in other processes
  Mutex router_mutex;
  // If several ranks are here.
  std::optional<RequestRouter> router HOCKET_PT_GUARDED_BY(router_mutex);
  std::optional<ExpertStats> experts;  // nullopt for a dense model
  std::shared_ptr<const StageForecast> forecast;
  std::shared_ptr<const OrderTable> orders;
  std::optional<Profiler> profiler;
  std::optional<RecentSteps> recent;
  std::vector<std::unique_ptr<RankLoop>> ranks;
  // Destroyed before the ranks, because it wakes them; null: no request can ask for a grammar.
  std::unique_ptr<GrammarCompiler> grammars;
  EngineInfo info;
  std::string why_no_grammar;   // info.why_no_grammar, kept while loading replaces info
  int max_queued_requests = 0;  // limit of all ranks together
  bool priorities = false;      // true if requests have priorities
  std::atomic<bool> accepting{true}, threaded{false};
};

}  // namespace hocket
