// The steps of one rank: the verbs, one function each, and all that they work on: scheduler, cache,
// model, pages, the agreement with other ranks. rank_loop.h has the thread that calls run().
//
//   join_epoch() .. run(), run(), .. -> leave_epoch(), also if a step is given up (several ranks)
//
// Thread: engine. Other threads may use what RankOverlap and KvEventChannel allow them.
#pragma once

#include <sched.h>

#include <array>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "base/mailbox.h"
#include "engine/balance/expert_mover.h"
#include "engine/cache_tier.h"
#include "engine/engine.h"
#include "engine/flight.h"
#include "engine/forward_thread.h"
#include "engine/grammar/rank_grammars.h"
#include "engine/loss_wait.h"
#include "engine/overlap_timing.h"
#include "engine/plan/scheduler_settings.h"
#include "engine/prepare.h"
#include "engine/rank_answers.h"
#include "engine/rank_drafts.h"
#include "engine/rank_experts.h"
#include "engine/rank_hooks.h"
#include "engine/rank_report.h"
#include "engine/rank_sessions.h"
#include "engine/ranks/lockstep.h"
#include "engine/ranks/network.h"
#include "engine/ranks/rank_overlap.h"
#include "engine/runner/runner.h"
#include "engine/sampler.h"
#include "engine/speculation.h"
#include "policy/scheduler/scheduler.h"
#include "policy/speculation/ngram_drafter.h"

namespace hocket {

struct AbortRequest {
  RequestId id{};
  FinishReason reason = FinishReason::abort;
  Error why;
};
struct AbortAll {
  Error why;
};
struct FlushCache {
  std::promise<bool> answer;
};
using Command = std::variant<RequestInput, AbortRequest, AbortAll, FlushCache, SessionCommand>;

// The parts that a rank is made of.
struct RankParts {
  std::unique_ptr<Runner> runner;
  std::unique_ptr<KvEventChannel> kv_events;  // null without --kv-events
  std::unique_ptr<CacheTier> tier;            // null without --kv-cache-dir
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
  // Requests wait at most so long for lost ranks; 0: they end when ranks are lost.
  Duration lost_rank_wait{};
  int tolerate_ranks = 0;  // so many ranks may be missing while the others serve
};

class RankStep {
 public:
  // The objects around the steps; all outlive it.
  struct Context {
    const Clock& clock;
    RankNetwork* network = nullptr;  // null for the only rank
    Mailbox<Command>& commands;
    RankReport& report;
    std::function<void()> wake;  // makes the rank look for work; any thread may call it
  };
  RankStep(RankParts parts, const Context& around);

  // Called by the thread that will run the steps, before the first of them; without it run()'s
  // caller does both.
  void adopt_thread();
  void send_to(Outbox& outbox) { answers_.send_to(outbox); }
  // Runs a step. Returns false if there was nothing to run, or ranks were lost.
  bool run();
  // The verb intake: takes in all commands that have come.
  void intake();
  void handle(Command& command);
  // Returns true if a request waits or runs, a command has come, or another rank begins a step.
  bool has_work();
  // Publishes the figures of a rank with nothing to run.
  void publish_idle();
  // Ends all requests with `why`.
  void end_all(const Error& why);
  // Takes in commands while ranks are missing, and ends the requests that have waited for them too
  // long.
  void wait_for_ranks();

  // Makes this rank part of an epoch. Errors: out_of_memory.
  Result<void> join_epoch(const RankNetwork::Link& link);
  void leave_epoch();
  // True between the two.
  bool joined() const { return joined_; }
  // True if steps can run with the other ranks; false for the only rank.
  bool connected() const { return joined_ && !lockstep_->lost(); }
  // Returns the agreement with the other ranks; null for the only rank.
  Lockstep* lockstep() { return lockstep_ ? &*lockstep_ : nullptr; }
  const Lockstep* lockstep() const { return lockstep_ ? &*lockstep_ : nullptr; }
  // Returns the ledger of the open step; null if another thread computes, which has it then.
  Ledger* ledger() { return overlapped_.active ? nullptr : &overlap_.ledger(); }

  // Other threads may call the functions of these two that say so.
  RankOverlap& overlap() { return overlap_; }
  const RankOverlap& overlap() const { return overlap_; }
  // Returns the drafts of this rank; null if there are none.
  const Speculation* speculation() const { return drafts_.speculation(); }
  KvEventChannel* kv_events() const { return kv_events_.get(); }
  // Returns what moves experts; null without --enable-eplb and --tolerate-ranks.
  const ExpertMover* mover() const { return experts_.mover(); }
  // Begins to load the experts of this rank in an epoch of `ranks`; requests that wait for lost
  // ranks wait as much longer as that takes. Returns true if they are there, so that the rank may
  // join the others.
  bool load_experts(const RankSet& ranks);
  // Returns the second tier of the prefix cache; null if there is none.
  const CacheTier* tier() const { return tier_.get(); }

 private:
  struct OverlappedSteps {
    bool active = false;     // steps overlap now: the forward thread computes
    bool after_rest = true;  // nothing has run since this rank rested
    OverlapTiming timing;
    std::optional<cpu_set_t> own_cpus;  // those of the engine's thread before it computed
    // The forward thread waits for its next step. Thread: forward, while it computes.
    std::optional<Ledger::OtherWork> between;
  };

  Flight* compute_next();
  Result<Duration> compute_drafts();
  // Overlapped steps (step_overlapped.cc).
  void begin_overlapping(OverlapSchedule schedule);
  bool run_overlapped();
  bool agree_overlapped();
  void launch(const Batch& batch);
  void compute_ahead(Flight& flight, std::span<const SampledToken> before);
  bool drafts_may_come();
  bool finish(Flight& flight);
  bool finish_all();
  void give_up(const Flight* failed);
  void rest_overlapped();
  bool wants_overlap() const;
  bool follow_choice();
  bool is_of_answers(const Flight& flight) const;
  void await_more_requests(const Flight& finished);

  void commit(Flight& flight);
  void reply(Flight& flight);
  bool restore_pages();
  void abort_step(std::span<const Batch* const> uncommitted);
  void begin_loading_experts(const RankSet& ranks);
  Error why_lost() const;

  void take_in(RequestInput& input);
  void take_in(AbortRequest& abort);
  void take_in(AbortAll& abort);
  void take_in(FlushCache& flush);
  void take_in(SessionCommand& order) { sessions_.carry_out(order); }
  void abort_all(const Error& why);
  void abort_live(FinishReason reason, const Error& why);
  void send_finished();

  StepProposal propose();
  NgramDrafter::Sources draft_sources();
  PrepareOptions prepare_options() const;
  StepTools tools();
  AgreedStep agreed() const;
  int rank_index() const { return network_ != nullptr ? network_->rank() : 0; }

  const RealClock real_clock_;
  const Clock& clock_;
  RankNetwork* const network_;
  Mailbox<Command>& commands_;
  RankReport& report_;
  ExchangeObserver watch_;
  const Duration stall_timeout_;
  const std::unique_ptr<Runner> runner_;
  const std::unique_ptr<KvEventChannel> kv_events_;
  RankExperts experts_;  // the lockstep asks its rebalance()
  LossWait loss_wait_;
  const int tolerate_ranks_;
  bool joined_ = false;
  std::optional<Lockstep> lockstep_;
  RankOverlap overlap_;
  RankGrammars grammars_;
  RankDrafts drafts_;
  RankHooks hooks_;
  const bool mixes_;                  // prompts and decode rows may share a step
  int64_t pending_prompt_rows_ = 0;   // rows that the step before left to compute
  bool integrity_unchecked_ = false;  // a request came since the last check
  Scheduler scheduler_;
  const std::unique_ptr<CacheTier> tier_;  // null: the prefix cache is in memory alone
  RankSessions sessions_;
  Sampler sampler_;
  RankAnswers answers_;
  FlightRing flights_;
  OverlappedSteps overlapped_;
  // Set with overlapped scheduling only. It is last because it uses the runner, sampler and
  // flights.
  std::optional<ForwardThread> forward_thread_;
};

}  // namespace hocket
