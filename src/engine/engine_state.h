// The engine's inside, shared by engine.cc (start, threads) and step.cc (the seven verbs). Touched
// by the engine thread alone, but for the parts marked "any".
#pragma once

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "base/mailbox.h"
#include "engine/engine.h"
#include "engine/flight.h"
#include "engine/forward_thread.h"
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
  void send(RequestOutput&& output);
  void send_finished();
  void refuse(RequestId id, Error why);
  std::unique_ptr<RequestSummary> summarise(Request& request);
  void publish(const Flight& flight, TimePoint now);
  void rest();
  void run(Outbox& outbox);
  PrepareOptions prepare_options() const;
  StepTools tools() { return {.runner = *runner, .sampler = sampler, .clock = clock}; }

  RealClock real_clock;
  const Clock& clock;
  std::unique_ptr<Runner> runner;
  std::unique_ptr<KvEventChannel> kv_events;  // null: nobody may listen
  Scheduler scheduler;
  Sampler sampler;
  StepLog step_log;

  // Reused by every step, in turn.
  std::array<Flight, ForwardThread::kMaxSteps> flights;
  size_t next_flight = 0;
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
  // Only with overlapped scheduling. Last: it uses the runner, the sampler and the flights.
  std::optional<ForwardThread> forward_thread;
};

}  // namespace hocket
