// The engine's inside, shared by engine.cc (start, threads) and step.cc (the seven verbs). Touched
// by the engine thread alone, but for the parts marked "any".
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "base/mailbox.h"
#include "engine/engine.h"
#include "engine/prepare.h"
#include "engine/runner.h"
#include "engine/sampler.h"
#include "engine/step_log.h"
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

struct Engine::State {
  State(std::unique_ptr<Runner> made_runner, const SchedulerOptions& options, const Clock* given);

  // The seven verbs (step.cc).
  void intake();
  void sample(const Batch& batch);
  void reply(const Batch& batch);
  bool step(Outbox& outbox);

  void handle(RequestInput& input);
  void handle(AbortRequest& abort);
  void handle(AbortAll& abort);
  void handle(FlushCache& flush);
  void send(RequestOutput&& output);
  void send_finished();
  void refuse(RequestId id, Error why);
  std::unique_ptr<RequestSummary> summarise(Request& request);
  void sample_block(const Batch& batch, int begin, int count);
  void report_prompt_logprob(const Request& request, const OutputRow& row, View<const float> logits,
                             int logits_row);
  void publish(const Batch& batch, TimePoint now, Duration took);
  void rest();
  void run(Outbox& outbox);

  RealClock real_clock;
  const Clock& clock;
  std::unique_ptr<Runner> runner;
  std::unique_ptr<KvEventChannel> kv_events;  // null: nobody may listen
  Scheduler scheduler;
  Sampler sampler;
  StepLog step_log;

  // Reused by every step.
  ForwardBatch forward_batch;
  std::vector<OutputRow> outputs;
  std::vector<SampleRow> sample_rows;
  std::vector<SampledToken> sampled;
  std::vector<std::unique_ptr<PositionLogprobs>> logprobs;
  std::unordered_map<RequestId, std::vector<PositionLogprobs>> prompt_logprobs;  // being collected
  bool integrity_unchecked = false;    // requests came since the last check when idle
  std::unordered_set<RequestId> live;  // submitted, not answered
  Outbox* outbox = nullptr;

  // Any thread.
  Mailbox<Command> commands;
  const int max_queued_requests;
  const bool priorities;                // of requests: on
  std::atomic<int> num_handed_over{0};  // in `commands`
  std::atomic<int> num_waiting{0};      // in the scheduler's queue after the last step
  std::atomic<bool> accepting{true}, stopping{false}, threaded{false};
  std::atomic<int64_t> last_turn_ns{0};  // end of the last step, or of finding nothing to do
  std::atomic<bool> busy{false};
  mutable std::mutex stats_mutex;
  EngineStats stats;  // under stats_mutex
  std::thread thread;
};

}  // namespace hocket
