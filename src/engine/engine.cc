#include "engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "engine/engine_state.h"
#include "engine/scheduler_settings.h"

namespace hocket {
namespace {

constexpr int kControlCommands = 4096;  // room for aborts and flushes beside the queued requests
constexpr auto kIdleWait = std::chrono::milliseconds(100);

// Room to tell of all pages at once and of as many changes meanwhile, within reason.
size_t kv_event_capacity(int num_pages) {
  return std::clamp<size_t>(2 * static_cast<size_t>(num_pages) + 64, 4096, 1 << 17);
}

Result<void> check_input(const RequestInput& input, const EngineInfo& info) {
  if (input.prompt.empty())
    return fail(error(ErrorCode::invalid_request, "the prompt has no tokens").with_param("prompt"));
  const int vocab_size = info.model.vocab_size;
  const auto outside = [&](TokenId token) {
    return value(token) < 0 || value(token) >= vocab_size;
  };
  const auto refuse = [&](TokenId token, const char* param) {
    return fail(error(ErrorCode::invalid_request, "token {} is outside the vocabulary of {}",
                      value(token), vocab_size)
                    .with_param(param));
  };
  for (const TokenId token : input.prompt)
    if (outside(token)) return refuse(token, "prompt");
  for (const auto& [token, bias] : input.sampling.logit_bias)
    if (outside(token)) return refuse(token, "logit_bias");
  for (const TokenId token : input.sampling.allowed_ids)
    if (outside(token)) return refuse(token, "allowed_token_ids");
  const int max_new = input.sampling.max_new_tokens;
  if (max_new < 1)
    return fail(
        error(ErrorCode::invalid_request, "max_new_tokens is {}, must be at least 1", max_new)
            .with_param("max_tokens"));
  const auto total = static_cast<int64_t>(input.prompt.size()) + max_new;
  if (total > info.context_length)
    return fail(error(ErrorCode::context_length_exceeded,
                      "the prompt has {} tokens and {} more are asked for, but the context is {}",
                      input.prompt.size(), max_new, info.context_length)
                    .with_fix("a shorter prompt or a smaller max_tokens"));
  return {};
}

}  // namespace

Engine::State::State(std::unique_ptr<Runner> made_runner, const SchedulerOptions& options,
                     const Clock* given)
    : clock(given != nullptr ? *given : real_clock),
      runner(std::move(made_runner)),
      scheduler(options),
      sampler(runner->info().model.vocab_size, runner->plan().work.max_logits_rows),
      commands(static_cast<size_t>(options.max_queued_requests) + kControlCommands),
      max_queued_requests(options.max_queued_requests),
      priorities(options.priorities.enabled) {
  for (Flight& flight : flights)
    flight.reserve(runner->plan().work, options.max_running_requests + 1, options.num_pages);
  last_turn_ns = clock.now().time_since_epoch().count();
  if (runner->info().overlap_schedule) forward_thread.emplace(tools());
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Engine::~Engine() {
  stop();
}

Result<std::unique_ptr<Engine>> Engine::create(Options options) {
  const int log_interval = options.settings.scheduler.decode_log_interval;
  if (log_interval < 1)
    return fail(ErrorCode::bad_value, "--decode-log-interval is {}, must be at least 1",
                log_interval);
  HOCKET_TRY(std::unique_ptr<Runner> runner,
             Runner::create({.settings = options.settings,
                             .progress = std::move(options.progress),
                             .tokenizer_eos = options.tokenizer_eos}));
  HOCKET_TRY(SchedulerOptions scheduler,
             scheduler_options(options.settings, runner->plan(), runner->info()));
  std::unique_ptr<KvEventChannel> events;
  if (options.settings.scheduler.kv_events)
    events = std::make_unique<KvEventChannel>(kv_event_capacity(scheduler.num_pages));
  scheduler.kv_events = events.get();
  auto state = std::make_unique<State>(std::move(runner), scheduler, options.clock);
  state->kv_events = std::move(events);
  state->step_log = StepLog(log_interval);
  return std::unique_ptr<Engine>(new Engine(std::move(state)));
}

const EngineInfo& Engine::info() const {
  return state_->runner->info();
}

KvEventChannel* Engine::kv_events() {
  return state_->kv_events.get();
}

RequestId Engine::next_request_id() {
  static std::atomic<uint64_t> next{1};
  return RequestId{next++};
}

void Engine::start(Outbox& outbox) {
  HOCKET_CHECK(!state_->threaded.load());
  state_->threaded = true;
  state_->thread = std::thread([this, &outbox] { state_->run(outbox); });
}

void Engine::State::run(Outbox& box) {
  pthread_setname_np(pthread_self(), "engine");
  if (!forward_thread) runner->workers().adopt_caller();
  while (!stopping) {
    if (step(box)) continue;
    if (auto command = commands.wait_pop(kIdleWait))
      std::visit([this](auto& c) { handle(c); }, *command);
  }
  land_all();
  const Error why = error(ErrorCode::shutting_down, "the server is shutting down");
  intake();
  for (const RequestId id : live) scheduler.abort(id, FinishReason::abort, why);
  send_finished();
}

void Engine::stop() {
  if (!state_->thread.joinable()) return;
  state_->accepting = false;
  state_->stopping = true;
  state_->commands.wake();
  state_->thread.join();
  state_->commands.close();
}

void Engine::stop_accepting() {
  state_->accepting = false;
}

Result<void> Engine::submit(RequestInput input) {
  if (!state_->accepting)
    return fail(error(ErrorCode::shutting_down, "the server is shutting down")
                    .with_fix("ask another server, or again when this one is back"));
  HOCKET_TRY_VOID(check_input(input, info()));
  const int queued = state_->num_handed_over + state_->num_waiting;
  // With priorities the scheduler decides who has to go.
  if (queued >= state_->max_queued_requests && !state_->priorities)
    return fail(error(ErrorCode::queue_full, "{} requests are waiting already, the limit is {}",
                      queued, state_->max_queued_requests)
                    .with_fix("ask again later, or raise --max-queued-requests"));
  ++state_->num_handed_over;
  if (!state_->commands.push(std::move(input))) {
    --state_->num_handed_over;
    return fail(
        error(ErrorCode::queue_full, "the engine's mailbox is full").with_fix("ask again later"));
  }
  return {};
}

// A full mailbox is emptied at the next step, so waiting for room is short.
static void push_control(Mailbox<Command>& commands, Command command) {
  while (!commands.push(command) && !commands.closed())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void Engine::abort(RequestId id) {
  push_control(state_->commands,
               AbortRequest{.id = id,
                            .reason = FinishReason::abort,
                            .why = error(ErrorCode::invalid_request, "the request was aborted")});
}

void Engine::complete(RequestId id) {
  push_control(state_->commands, AbortRequest{.id = id, .reason = FinishReason::stop, .why = {}});
}

void Engine::abort_all() {
  push_control(state_->commands,
               AbortAll{error(ErrorCode::invalid_request, "all requests were aborted")});
}

bool Engine::flush_cache() {
  FlushCache flush;
  std::future<bool> answer = flush.answer.get_future();
  push_control(state_->commands, std::move(flush));
  if (!state_->threaded) state_->intake();
  try {
    return answer.get();
  } catch (const std::future_error&) {
    return false;  // the engine stopped before it came to it
  }
}

EngineStats Engine::stats() const {
  EngineStats copy;
  {
    std::lock_guard lock(state_->stats_mutex);
    copy = state_->stats;
  }
  copy.busy = state_->busy || state_->num_handed_over > 0;
  if (copy.busy) {
    const Duration since =
        state_->clock.now().time_since_epoch() - Duration(state_->last_turn_ns.load());
    copy.seconds_since_last_step = std::max(0.0, to_seconds(since));
  }
  return copy;
}

bool Engine::step(Outbox& outbox) {
  HOCKET_CHECK(!state_->threaded.load());
  return state_->step(outbox);
}

}  // namespace hocket
