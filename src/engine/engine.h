// What makes the tokens: one rank, or several that share the experts and serve as one. Each rank
// has a scheduler, a model, KV pages and a thread that turns them (rank.h; step.cc shows one turn);
// a request is one rank's from its first token to its last.
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
#include "engine/engine_info.h"
#include "engine/messages.h"
#include "engine/watch/engine_stats.h"
#include "engine/watch/profile.h"
#include "engine/watch/recent_steps.h"
#include "policy/cache/kv_events.h"
#include "policy/routing/request_router.h"
#include "policy/scheduler/request.h"
#include "text/grammar/grammar.h"

namespace hocket {

// Where a request is, and on which rank.
struct RequestAt {
  int rank = 0;
  RequestGlance seen;
};

// This process is one rank of several, which are processes of their own, here or on other hosts.
struct ClusterLaunch {
  LaunchPlan plan;
  ClusterOptions control;
  // Called by create() as soon as the control plane is there, before anything is loaded: rank 0
  // listens then, the others were taken. An error ends create() with it.
  std::function<Result<void>(ControlPlane&)> joined;
};

class Engine {
 public:
  struct Options {
    ServerSettings settings;
    std::optional<ClusterLaunch> cluster;  // none: all ranks are threads of this process
    const Clock* clock = nullptr;          // null: the real one
    std::function<void(const LoadProgress&)> progress;
    int tokenizer_size = 0;                // one past its largest id; 0: not known
    std::optional<TokenId> tokenizer_eos;  // ends answers too, besides those of the model's files
    // For grammars of answers; its tokenizer outlives the engine. None: free text only.
    std::optional<GrammarVocabulary::Source> grammars;
    // The command of the process that tries grammars before they are compiled here
    // (grammar_trials.h). Empty: they are compiled untried, for clients that are trusted.
    std::vector<std::string> grammar_trials;
    // Of several ranks: one that another waits for so long is lost.
    Duration stall_timeout = std::chrono::seconds(30);
  };
  // Plans memory, loads weights, makes pages and work buffers. Errors: those of weights/ (exit 3),
  // out_of_memory and kv_does_not_fit (4) with the numbers and a remedy, unknown_isa and bad_value
  // (2). The ranks of --ep-size are loaded side by side.
  static Result<std::unique_ptr<Engine>> create(Options options);
  ~Engine();

  const EngineInfo& info() const;  // Thread: any
  // What the prefix cache holds, for one reader; null without --kv-events.   Thread: any
  KvEventChannel* kv_events();

  // Starts the engine threads; outputs go to `outbox`, which must outlive stop().
  void start(Outbox& outbox);
  // Ends the threads after the step in flight; what still waits or runs is answered with
  // shutting_down.
  void stop();

  // Thread: any. Hands a request over to the rank that --dp-routing chooses. Errors at once:
  // queue_full (of all ranks together), shutting_down, lost_rank (the service is over until it is
  // started anew; requests under way have ended with the same error),
  // context_length_exceeded, invalid_request (empty prompt, token out of vocabulary, limits of
  // SamplingParams); other refusals arrive as an output.
  Result<void> submit(RequestInput input);
  // Thread: any. Unknown ids are ignored. The request's last output says `abort`.
  void abort(RequestId id);
  void abort_all();
  // Thread: any. The answer is whole (a stop string was found): ends with `stop`, and its pages
  // stay cached.
  void complete(RequestId id);
  // Thread: any; waits for the engine. False while requests run or wait, on any rank.
  bool flush_cache();
  // Thread: any. No new submits (shutting_down); what runs goes on.
  void stop_accepting();
  // Thread: any.
  EngineStats stats() const;
  // Of all ranks of the service, also those of other processes, by rank; of those as they said with
  // the last step.   Thread: any.
  std::vector<RankLoad> loads() const;
  // What overlap did here and what is planned, with reasons.   Thread: any.
  OverlapView overlap() const;
  // Timelines of the ranks of this process.   Thread: any.
  Profiler& profiler();
  // The newest steps of the ranks of this process.   Thread: any.
  const RecentSteps& recent_steps() const;
  // The requests of the ranks of this process, RequestBoard::kMostRows of each, as of a moment ago;
  // those that nobody knows yet are left out. Thread: any.
  std::vector<RequestAt> glance() const;
  // Which experts were chosen by what this process computed; null for a dense model.
  ExpertStats* expert_stats();
  // Who is there; null where all ranks are in this process.   Thread: any.
  ControlPlane* cluster();
  // Why this process can never serve again: the others refused it, or rank 0 stayed away.
  // Thread: any.
  std::optional<Error> failure() const;
  static RequestId next_request_id();  // unique in this process

  // Without a thread: one turn of the seven verbs; false when there was nothing to do. For benches
  // and tests; not after start(), and for one rank only.
  bool step(Outbox& outbox);

 private:
  friend class EngineProbe;
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hocket
