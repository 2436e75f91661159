// One rank of the engine: its scheduler, cache, model and pages, and the thread that runs its
// steps. The verbs of a step are in step.cc, all else in rank.cc. Only its engine thread touches
// it, except for the parts marked "any".
#pragma once

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "base/mailbox.h"
#include "base/thread.h"
#include "engine/engine.h"
#include "engine/flight.h"
#include "engine/forward_thread.h"
#include "engine/grammar/rank_grammars.h"
#include "engine/prepare.h"
#include "engine/rank_hooks.h"
#include "engine/ranks/lockstep.h"
#include "engine/ranks/network.h"
#include "engine/ranks/rank_overlap.h"
#include "engine/runner.h"
#include "engine/sampler.h"
#include "engine/watch/request_board.h"
#include "engine/watch/step_log.h"
#include "policy/routing/request_router.h"
#include "policy/scheduler/scheduler.h"

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
using Command = std::variant<RequestInput, AbortRequest, AbortAll, FlushCache>;

struct Rank {
  struct Parts {
    std::unique_ptr<Runner> runner;
    std::unique_ptr<KvEventChannel> kv_events;  // null without --kv-events
    ExpertStats* experts = nullptr;             // outlives the rank; null for a dense model
    SchedulerOptions scheduler;                 // the rank itself sets `hooks` and `kv_events`
    int log_interval = 1;                       // StepLog's decode_interval
    const Clock* clock = nullptr;               // null: the real clock
    GrammarCompiler* grammars = nullptr;  // lives from start() to join(); null: free text only
    // Null for the only rank.
    std::unique_ptr<RankNetwork> network;
    Duration stall_timeout = AllToAll::Options().stall_timeout;
    int max_delayed_passes = 0;  // passes that prompts may wait for other ranks' decode rows
    std::shared_ptr<const StageModel> prior;  // option of RankOverlap, as the next three
    LayerCounts layers;
    Profiler* profiler = nullptr;
    RecentSteps* recent = nullptr;
    Duration farewell{};  // longest time to serve others' requests after ask_to_stop()
  };
  explicit Rank(Parts parts);

  // These may be called by any thread.
  void start(Outbox& outbox);
  void ask_to_stop();
  void wake();
  void join();
  // Returns false if the mailbox is full.
  [[nodiscard]] bool submit(RequestInput& input);
  // Waits for room, which is short: the next step empties a full mailbox. If the mailbox has stayed
  // full for kControlWait, the rank hangs: the command is dropped and that is logged.
  void push_control(Command command);
  RankLoad load() const;
  // Returns the loads that all ranks sent with the last step, this rank's own included.
  std::vector<RankLoad> heard_loads() const;
  RankStats read_stats() const;

  // The verbs (step.cc); schedule is the scheduler's, prepare, forward and sample have files of
  // their own.
  bool step(Outbox& outbox);
  bool step_overlapped();
  void intake();
  void commit(Flight& flight);
  void reply(Flight& flight);

  Flight& take_flight();
  void land(Flight& flight);
  void land_all();
  void handle(RequestInput& input);
  void handle(AbortRequest& abort);
  void handle(AbortAll& abort);
  void handle(FlushCache& flush);
  void keep_prompt_logprobs(Flight& flight);
  void keep_routed(const Flight& flight);
  void send(RequestOutput&& output);
  void send_finished();
  void refuse(RequestId id, Error why);
  std::unique_ptr<RequestSummary> summarise(Request& request);
  void publish(const Flight& flight, TimePoint now);
  void note_step(const Flight& flight, const SchedulerStats& now) const;
  void publish_load(const SchedulerStats& now);
  void rest();
  void run(Outbox& outbox);
  bool waits_for_room();
  bool over() const;
  bool together() const;
  bool has_cause();
  void nap();
  void give_up(const Batch& batch);
  void meet();
  Error why_not_met() const;
  void leave();
  // Records the verb that begins, for the watchdog.
  void at(Verb next) { verb.store(next, std::memory_order_relaxed); }
  StepPlace place() const;
  PrepareOptions prepare_options() const;
  Flight* compute_next();
  StepWish wish();
  // Returns null if another thread computes.
  Ledger* ledger() { return runner->info().overlap_schedule ? nullptr : &overlap.ledger(); }
  int rank_index() const { return network ? network->rank() : 0; }
  StepTools tools() {
    return {.runner = *runner,
            .sampler = sampler,
            .clock = clock,
            .pass = lockstep ? lockstep->pass() : PassId{},
            .plan = lockstep ? lockstep->plan() : Plan{},
            .is_shadow = lockstep && lockstep->is_shadow(),
            .ledger = ledger(),
            .experts = experts,
            .grammars = &grammars};
  }

  RealClock real_clock;
  const Clock& clock;
  const std::unique_ptr<RankNetwork> network;  // null for the only rank
  PulseWatch watch;
  Duration exchange_waited{}, agreement_waited{};  // totals over steps in which any rank has rows
  const Duration stall_timeout, farewell;
  bool met = false;  // the ranks of this epoch are connected and the runner is attached
  std::unique_ptr<Runner> runner;
  const std::unique_ptr<KvEventChannel> kv_events;
  ExpertStats* const experts;
  std::optional<Lockstep> lockstep;  // nullopt for the only rank
  RankOverlap overlap;
  RankGrammars grammars;
  RankHooks hooks;
  const bool mixes;                 // prompts and decode rows may share a step
  int64_t pending_prompt_rows = 0;  // rows that the step before left to compute
  Scheduler scheduler;
  Sampler sampler;
  StepLog step_log;
  RequestBoard board;

  // Two flights, which the steps use in turn.
  std::array<Flight, ForwardThread::kMaxSteps> flights;
  size_t next_flight = 0;
  // Collected until the first token.
  std::unordered_map<RequestId, std::vector<PositionLogprobs>> prompt_logprobs;
  std::unordered_map<RequestId, std::vector<uint16_t>> routed;  // collected until the last token
  bool integrity_unchecked = false;    // a request came since the last check
  std::unordered_set<RequestId> live;  // submitted and not answered
  Outbox* outbox = nullptr;

  // Requests and prompt tokens: taken in since the last publish_load(), and published by it.
  int new_requests = 0, published_requests = 0;
  int64_t new_tokens = 0, published_tokens = 0;

  // These may be used by any thread.
  Mailbox<Command> commands;
  // When push_control() found the mailbox full; 0: it had room.
  std::atomic<int64_t> full_since_ns{0};
  std::atomic<bool> drops{false};       // true after it logged that it drops commands
  std::atomic<int> num_handed_over{0};  // requests in `commands`
  std::atomic<int> num_waiting{0};      // in the scheduler's queue after the last step
  std::atomic<int> load_requests{0};    // handed over, waiting or running
  std::atomic<int64_t> load_tokens{0};  // RankLoad::num_tokens of these
  std::atomic<bool> stopping{false}, threaded{false};
  std::atomic<int64_t> stop_by_ns{0};    // deadline once stopping
  std::atomic<int64_t> last_turn_ns{0};  // end of the last step, or when it found nothing to do
  std::atomic<bool> busy{false};
  std::atomic<Verb> verb{Verb::rest};
  mutable std::mutex stats_mutex;
  RankStats stats;  // guarded by stats_mutex
  Thread thread;
  // Set with overlapped scheduling only. It is last because it uses the runner, sampler and
  // flights.
  std::optional<ForwardThread> forward_thread;
};

}  // namespace hocket
