// The parts that a rank is made of, as rank_setup.h makes them. The objects of its steps (step.h)
// take what they need.
#pragma once

#include <memory>
#include <optional>

#include "engine/balance/expert_mover.h"
#include "engine/grammar/rank_grammars.h"
#include "engine/lockstep/network.h"
#include "engine/lockstep/rank_overlap.h"
#include "engine/plan/scheduler_settings.h"
#include "engine/runner/runner.h"
#include "engine/speculation.h"
#include "engine/tier/cache_tier.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

struct RankParts {
  std::unique_ptr<Runner> runner;
  std::unique_ptr<KvEventChannel> kv_events;  // null without --kv-events
  std::unique_ptr<CacheTier> tier;            // null without a second tier (has_cache_tier)
  ExpertStats* experts = nullptr;             // outlives the rank; null for a dense model
  std::optional<ExpertMover::Options> mover;  // --enable-eplb, --tolerate-ranks
  int64_t rebalance_iterations = 0;           // option of Rebalance
  SchedulerOptions scheduler;                 // the rank itself sets `hooks` and `kv_events`
  int log_interval = 1;                       // StepLog's decode_interval
  const Clock* clock = nullptr;               // null: the real clock
  SpeculationChoice speculation;
  DrafterMaker drafter;                  // empty: that of --speculative-algorithm
  GrammarCompiler* grammars = nullptr;   // lives from start() to join(); null: free text only
  std::unique_ptr<RankNetwork> network;  // null for the only rank
  Duration stall_timeout = AllToAll::Options().stall_timeout;
  int max_delayed_passes = 0;  // passes that prompts may wait for other ranks' decode rows
  std::shared_ptr<const StageModel> prior;  // option of RankOverlap, as the next three
  LayerCounts layers;
  Profiler* profiler = nullptr;
  RecentSteps* recent = nullptr;
  Duration drain_time{};  // longest time to serve others' requests after ask_to_stop()
  // Limit of the time for which requests wait for lost ranks; 0: they end at once.
  Duration lost_rank_wait{};
  int tolerate_ranks = 0;  // number of ranks that may be missing
};

}  // namespace hocket
