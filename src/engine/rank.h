// One rank of the engine: its scheduler, cache, model and pages, and the thread that turns them.
// The seven verbs of a turn are in step.cc, all else in rank.cc. Touched by its engine thread
// alone, but for the parts marked "any".
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
#include "engine/rank_outside.h"
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
    std::unique_ptr<KvEventChannel> kv_events;  // null: nobody may listen
    ExpertStats* experts = nullptr;             // outlives the rank; null: a dense model
    SchedulerOptions scheduler;                 // `outside` and `kv_events` are set by the rank
    int log_interval = 1;                       // StepLog
    const Clock* clock = nullptr;               // null: the real one
    GrammarCompiler* grammars = nullptr;        // outlives start() to join(); null: free text only
    // Of several ranks; null: the only one.
    std::unique_ptr<RankNetwork> network;
    Duration stall_timeout = AllToAll::Options().stall_timeout;
    int max_delayed_passes = 0;               // of prompts, for the sake of other ranks' answers
    std::shared_ptr<const StageModel> prior;  // RankOverlap::Options, as are the next three
    LayerCounts layers;
    Profiler* profiler = nullptr;
    RecentSteps* recent = nullptr;
    Duration farewell{};  // to go on for others' requests after ask_to_stop(), at most
  };
  explicit Rank(Parts parts);

  // Thread: any.
  void start(Outbox& outbox);
  void ask_to_stop();
  void wake();
  void join();
  // False when the mailbox is full.
  [[nodiscard]] bool submit(RequestInput& input);
  // Waits for room, which is short: a full mailbox is emptied at the next step. A rank whose
  // mailbox has stayed full for kControlWait stands still: the command is dropped, which is logged.
  void push_control(Command command);
  RankLoad load() const;
  // As the others said with the last step; this rank's own as of then.
  std::vector<RankLoad> heard_loads() const;
  RankStats read_stats() const;

  // The seven verbs (step.cc); schedule is the scheduler's, prepare, forward and sample have files
  // of their own.
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
  // The next verb begins.
  void at(Verb next) { verb.store(next, std::memory_order_relaxed); }
  StepPlace place() const;
  PrepareOptions prepare_options() const;
  Flight* compute_next();
  StepWish wish();
  // Null where another thread computes.
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
  const std::unique_ptr<RankNetwork> network;  // several ranks only
  PulseWatch watch;
  Duration exchange_waited{}, agreement_waited{};  // of steps with rows of anybody
  const Duration stall_timeout, farewell;
  bool met = false;  // the ranks of this epoch, and the runner is attached
  std::unique_ptr<Runner> runner;
  const std::unique_ptr<KvEventChannel> kv_events;
  ExpertStats* const experts;
  std::optional<Lockstep> lockstep;  // several ranks only
  RankOverlap overlap;
  RankGrammars grammars;
  RankOutside outside;
  const bool mixes;                 // prompts and answers in one step
  int64_t pending_prompt_rows = 0;  // after the step before
  Scheduler scheduler;
  Sampler sampler;
  StepLog step_log;
  RequestBoard board;

  // Reused by every step, in turn.
  std::array<Flight, ForwardThread::kMaxSteps> flights;
  size_t next_flight = 0;
  std::unordered_map<RequestId, std::vector<PositionLogprobs>> prompt_logprobs;  // being collected
  std::unordered_map<RequestId, std::vector<uint16_t>> routed;                   // likewise
  bool integrity_unchecked = false;    // requests came since the last check when idle
  std::unordered_set<RequestId> live;  // submitted, not answered
  Outbox* outbox = nullptr;

  // Taken in, not in the published load yet; and what is.
  int new_requests = 0, published_requests = 0;
  int64_t new_tokens = 0, published_tokens = 0;

  // Any thread.
  Mailbox<Command> commands;
  std::atomic<int64_t> full_since_ns{0};  // push_control() found it full; 0: it had room
  std::atomic<bool> drops{false};         // and said that it drops commands
  std::atomic<int> num_handed_over{0};    // in `commands`
  std::atomic<int> num_waiting{0};        // in the scheduler's queue after the last step
  std::atomic<int> load_requests{0};      // handed over, waiting, running
  std::atomic<int64_t> load_tokens{0};    // RankLoad::num_tokens of these
  std::atomic<bool> stopping{false}, threaded{false};
  std::atomic<int64_t> stop_by_ns{0};    // once stopping
  std::atomic<int64_t> last_turn_ns{0};  // end of the last step, or of finding nothing to do
  std::atomic<bool> busy{false};
  std::atomic<Verb> verb{Verb::rest};
  mutable std::mutex stats_mutex;
  RankStats stats;  // under stats_mutex
  Thread thread;
  // Only with overlapped scheduling. Last: it uses the runner, the sampler and the flights.
  std::optional<ForwardThread> forward_thread;
};

}  // namespace hocket
