// The engine computes the tokens, as one rank or as several that share the experts and serve as
// one. Each rank has a scheduler, a model, KV pages and a thread that runs its steps
// (rank_loop.h; step.cc shows one step); a request stays on one rank from its first token to its
// last.
//
// create() makes the engine that computes (local_engine.h). Tests of the server replace it by an
// engine that plays a script.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cluster/control_plane.h"
#include "cluster/launch.h"
#include "compute/weights/loader.h"
#include "core/server_settings.h"
#include "engine/messages.h"
#include "engine/pages/prefill_role.h"
#include "engine/plan/engine_info.h"
#include "engine/plan/tier_buffers.h"
#include "engine/speculation.h"
#include "engine/stats/engine_stats.h"
#include "engine/stats/profiler.h"
#include "engine/stats/recent_steps.h"
#include "policy/cache/kv_events.h"
#include "policy/routing/request_router.h"
#include "policy/scheduler/request.h"
#include "text/grammar/grammar.h"

namespace hocket {

// The progress of one request, and the rank that runs it.
struct RequestStatus {
  int rank = 0;
  RequestSnapshot seen;
};

// Makes this process one rank of several, which are processes of their own, here or on other hosts.
struct ClusterLaunch {
  Launch launch;
  ClusterOptions control;
  // create() calls it as soon as the control plane has started, before anything is loaded: rank 0
  // listens then, the other ranks have joined. If it fails, create() returns its error.
  std::function<Result<void>(ControlPlane&)> joined;
};

// save: writes the pages of a session, and the list of its tokens under `name`, to the folder of
// --kv-cache-dir. restore: reads what was saved under `name` as this session. end: keeps the
// session no longer, and forgets what was saved under `name`; its pages stay until they are
// evicted. find: returns the number of tokens of the session that a rank of this process has.
// find_saved: returns the number that was saved under `name`, from the head of its file alone, so
// the file may still fail to restore. Both change nothing.
enum class SessionAction : uint8_t { save, restore, end, find, find_saved };
struct SessionRequest {
  SessionAction action = SessionAction::save;
  SessionKey session;
  SessionKey name;
  SessionKey owner;     // has the saved sessions, which are counted by owner
  uint64_t client = 0;  // asks: at most kMaxSessionsOfClient of its calls have not ended
};
struct SessionResult {
  // That files have (save, find_saved), memory has (restore), or are or were kept (find, end).
  int64_t tokens = 0;
  int64_t bytes = 0;  // size of the list of tokens
};

// Parts of an engine that others use; they live as long as it does.   Thread: any, for all.
struct EngineParts {
  // The events of the prefix cache, for one reader; null without --kv-events.
  KvEventChannel* kv_events = nullptr;
  // The counts of chosen experts, over all that this process computed; null for a dense model.
  ExpertStats* expert_stats = nullptr;
  // Record timelines, and the newest steps, of the ranks of this process.
  Profiler* profiler = nullptr;
  const RecentSteps* recent_steps = nullptr;
  ControlPlane* cluster = nullptr;  // null: all ranks are in this process
  PrefillRole* role = nullptr;      // null: no pages are read from elsewhere
};

class Engine {
 public:
  struct Options {
    ServerSettings settings;
    std::optional<ClusterLaunch> cluster;  // nullopt: all ranks are threads of this process
    const Clock* clock = nullptr;          // null: the real clock
    std::function<void(const LoadProgress&)> progress;
    int tokenizer_size = 0;                // one past the largest id; 0: not known
    std::optional<TokenId> tokenizer_eos;  // an end token besides those of the model's files
    // The vocabulary for grammars; its tokenizer outlives the engine. nullopt: free text only.
    std::optional<GrammarVocabulary::Source> grammars;
    // The command of the process that tries grammars before they are compiled here
    // (grammar_trials.h). Empty: they are compiled untried, which is for trusted clients only.
    std::vector<std::string> grammar_trials;
    // Makes the drafter of each rank, instead of the one that --speculative-algorithm names.
    DrafterMaker drafter;
    // With several ranks: if a rank waits this long for another, the other is lost.
    Duration stall_timeout = std::chrono::seconds(30);
    // Memory for the records that travel to stores at a time (plan/tier_buffers.h).
    int64_t record_budget_bytes = TierBuffers::kBytes;
  };
  // Plans memory, loads weights, makes pages and work buffers. Errors: those of weights/ (exit 3),
  // out_of_memory and kv_does_not_fit (4) with the numbers and a remedy, unknown_isa and bad_value
  // (2). The ranks of --ep-size are loaded at the same time.
  static Result<std::unique_ptr<Engine>> create(Options options);
  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  static RequestId next_request_id();  // unique in this process

  virtual const EngineInfo& info() const = 0;  // Thread: any
  virtual EngineParts parts() = 0;             // Thread: any

  // Starts the engine threads; outputs go to `outbox`, which must outlive stop().
  virtual void start(Outbox& outbox) = 0;
  // Ends the threads after the step in flight; requests that still wait or run are answered with
  // shutting_down.
  virtual void stop() = 0;

  // Passes a request to the rank that --dp-routing chooses. Thread: any. Errors at once:
  // queue_full (of all ranks together), shutting_down, lost_rank (no rank can serve until the
  // service is restarted; requests under way have ended with the same error),
  // context_length_exceeded, invalid_request (empty prompt, token out of vocabulary, limits of
  // SamplingParams); other refusals arrive as an output.
  virtual Result<void> submit(RequestInput input) = 0;
  // Ends a request; its last output says `abort`. Unknown ids are ignored. Thread: any.
  virtual void abort(RequestId id) = 0;
  virtual void abort_all() = 0;
  // Ends a request whose answer is whole (a stop string was found) with `stop`; its pages stay
  // cached. Thread: any.
  virtual void finish_whole(RequestId id) = 0;
  // Empties the prefix caches, and waits until they are empty. Returns false while requests run or
  // wait on any rank. Thread: any.
  virtual bool flush_cache() = 0;
  // Saves, restores or ends a session by name. Waits at most kSessionWait for other calls with the
  // session or the name, and then as long for the ranks. A save writes all pages of the session
  // that are left; if one cannot be written, what was saved before stays. A restore that finds no
  // page does not change the session. Errors: not_found; invalid_request without --kv-cache-dir;
  // queue_full if too many are saved, another call already waits for the session or the name, or
  // kMaxSessionsOfClient calls of the client have not ended; request_timeout; timed_out; io.
  // Thread: any except the one that aborts requests, because it must not wait. find and find_saved
  // wait for no other call, and take at most kFindWait.
  static constexpr Duration kSessionWait = std::chrono::seconds(60);
  static constexpr Duration kFindWait = std::chrono::seconds(4);
  // Limit of one call for a list of tokens in a file, beside the time of its bytes.
  static constexpr Duration kSessionFileWait = std::chrono::seconds(5);
  // Limit of calls at once, which as many threads of files serve; and of those of one client, which
  // leaves threads to others while its calls hang. A call whose file hangs counts until it ends.
  static constexpr int kMaxSessionCalls = 4, kMaxSessionsOfClient = 2;
  virtual Result<SessionResult> change_session(const SessionRequest& ask) = 0;
  // Refuses further submits (shutting_down); running requests continue. Thread: any.
  virtual void stop_accepting() = 0;
  // Returns counters of the ranks of this process, added up. Thread: any.
  virtual EngineStats stats() const = 0;
  // Returns the load of every rank of the service, by rank. Ranks in other processes send theirs
  // with each step. Thread: any.
  virtual std::vector<RankLoad> loads() const = 0;
  // Returns how much overlap hid here, and the plans with reasons. Thread: any.
  virtual OverlapView overlap() const = 0;
  // Returns how many drafts steps have, and why. Thread: any.
  virtual SpeculationView speculation() const = 0;
  // Returns the requests of the ranks of this process, at most RequestBoard::kMaxRows of each, as
  // of a moment ago; requests that no step has seen yet are left out. Thread: any.
  virtual std::vector<RequestStatus> request_snapshots() const = 0;
  // Returns why this process can never serve again: the other ranks refused it, or rank 0 stayed
  // away. Thread: any.
  virtual std::optional<Error> failure() const = 0;

  // Runs one step on the calling thread; false if there was nothing to do. For benches and tests;
  // not after start(), and for one rank only.
  virtual bool step(Outbox& outbox) = 0;

 protected:
  Engine() = default;
};

}  // namespace hocket
