// One rank of hocket: scheduler, model, KV pages and the thread that turns them. See step.cc for
// one turn.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "compute/weights/loader.h"
#include "core/server_settings.h"
#include "engine/engine_info.h"
#include "engine/messages.h"
#include "engine/step_log.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

// Counters and gauges of now; a copy.
struct EngineStats {
  SchedulerStats scheduler;
  StepCounts steps;
  uint64_t num_requests_finished = 0, num_requests_aborted = 0, num_requests_failed = 0;
  double gen_throughput = 0;  // tokens/s over the last second of steps; 0 when idle
  double last_step_seconds = 0;
  double step_seconds_total = 0;
  double seconds_since_last_step = 0;  // while there is work; 0 when idle
  bool busy = false;                   // there is work
};

class Engine {
 public:
  struct Options {
    ServerSettings settings;
    const Clock* clock = nullptr;  // null: the real one
    std::function<void(const LoadProgress&)> progress;
    std::optional<TokenId> tokenizer_eos;  // ends answers too, besides those of the model's files
  };
  // Plans memory, loads weights, makes pages and work buffers. Errors: those of weights/ (exit 3),
  // out_of_memory and kv_does_not_fit (4) with the numbers and a remedy, unknown_isa and bad_value
  // (2).
  static Result<std::unique_ptr<Engine>> create(Options options);
  ~Engine();

  const EngineInfo& info() const;  // Thread: any
  // What the prefix cache holds, for one reader; null without --kv-events.   Thread: any
  KvEventChannel* kv_events();

  // Starts the engine thread; outputs go to `outbox`, which must outlive stop().
  void start(Outbox& outbox);
  // Ends the thread after the step in flight; what still waits or runs is answered with
  // shutting_down.
  void stop();

  // Thread: any. Hands a request over. Errors at once: queue_full, shutting_down,
  // context_length_exceeded, invalid_request (empty prompt, token out of vocabulary, limits of
  // SamplingParams); other refusals arrive as an output.
  Result<void> submit(RequestInput input);
  // Thread: any. Unknown ids are ignored. The request's last output says `abort`.
  void abort(RequestId id);
  void abort_all();
  // Thread: any. The answer is whole (a stop string was found): ends with `stop`, and its pages
  // stay cached.
  void complete(RequestId id);
  // Thread: any; waits for the engine. False while requests run or wait.
  bool flush_cache();
  // Thread: any. No new submits (shutting_down); what runs goes on.
  void stop_accepting();
  // Thread: any.
  EngineStats stats() const;
  static RequestId next_request_id();  // unique in this process

  // Without a thread: one turn of the seven verbs; false when there was nothing to do. For `run`,
  // `check`, benches and tests; not after start().
  bool step(Outbox& outbox);

 private:
  friend class EngineProbe;
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hocket
