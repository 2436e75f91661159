// The engine that computes: the ranks of this process, and the parts between them and the callers.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "compute/comm/loopback.h"
#include "engine/engine.h"
#include "engine/grammar_setup.h"
#include "engine/kept_model_hash.h"
#include "engine/lockstep/loopback_network.h"
#include "engine/queue_places.h"
#include "engine/rank_loop.h"
#include "engine/session_calls.h"
#include "engine/stats/expert_stats.h"
#include "engine/step_recorders.h"
#include "policy/routing/request_router.h"

namespace hocket {

class LocalEngine final : public Engine {
 public:
  LocalEngine() = default;
  ~LocalEngine() override { stop(); }
  // Called once, before all else. Errors: those of Engine::create.
  Result<void> load(Options& options);

  const EngineInfo& info() const override { return info_; }
  EngineParts parts() override;
  void start(Outbox& outbox) override;
  void stop() override;
  Result<void> submit(RequestInput input) override;
  void abort(RequestId id) override;
  void abort_all() override;
  void finish_whole(RequestId id) override;
  bool flush_cache() override;
  Result<SessionResult> change_session(const SessionRequest& ask) override {
    return sessions_->change(ask);
  }
  void stop_accepting() override { accepting_ = false; }
  EngineStats stats() const override;
  std::vector<RankLoad> loads() const override;
  OverlapView overlap() const override;
  SpeculationView speculation() const override;
  std::vector<RequestStatus> request_snapshots() const override;
  std::optional<Error> failure() const override { return ranks_.front()->failure(); }
  bool step(Outbox& outbox) override;

 private:
  friend class EngineProbe;

  // Load the only rank; all ranks, as threads; one rank of a cluster.
  Result<void> load_alone(Options& options);
  Result<void> load_together(Options& options);
  Result<void> load_one_of_cluster(Options& options);
  Result<void> add_rank(std::unique_ptr<Runner> runner, const Options& options,
                        std::unique_ptr<RankNetwork> network = nullptr);
  std::optional<Error> lost() const;
  // Returns an error if a rank is about to leave, and the others will not serve without it.
  std::optional<Error> stopping() const;
  Result<int> choose_rank(const CacheNamespace& name_space, std::span<const TokenId> prompt);
  std::string missing_ranks() const;  // as EngineStats::missing_ranks
  // A rank that does not hold the request ignores the command.
  template <class Make>
  void send_to_all(Make&& command) {
    for (const auto& rank : ranks_) rank->push_control(command());
  }

  // The members are in the order in which they are made: ranks use networks, and these belong to
  // the hub or the control plane.
  std::optional<LoopbackHub> hub_;         // if several ranks are here
  SharedError loss_;                       // if several ranks are here
  std::unique_ptr<ControlPlane> control_;  // if ranks are in other processes
  Mutex router_mutex_;
  // If several ranks are here.
  std::optional<RequestRouter> router_ HOCKET_PT_GUARDED_BY(router_mutex_);
  std::optional<ExpertStats> experts_;      // nullopt for a dense model
  HashedModel hashed_;                      // empty without tier_
  std::optional<CacheTier::Options> tier_;  // nullopt: the prefix cache is in memory alone
  std::shared_ptr<const StageEstimate> estimate_;
  std::optional<StepRecorders> recorders_;
  std::vector<std::unique_ptr<RankLoop>> ranks_;
  GrammarSetup grammars_;              // destroyed before the ranks, because it wakes them
  std::unique_ptr<PageServer> pages_;  // null without --kv-cache-listen
  std::optional<SessionCalls> sessions_;
  EngineInfo info_;
  std::optional<QueuePlaces> places_;  // those of all ranks together; set by load()
  std::atomic<bool> accepting_{true}, threaded_{false};
};

}  // namespace hocket
