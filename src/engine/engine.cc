#include "engine/engine.h"

#include <pthread.h>

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "engine/engine_state.h"

namespace hocket {
namespace {

constexpr int kControlCommands = 4096;  // room for aborts and flushes beside the queued requests
constexpr auto kIdleWait = std::chrono::milliseconds(100);

PriorityOptions priority_options(const SchedulerSettings& settings) {
  return {.enabled = settings.enable_priority_scheduling,
          .low_values_first = settings.schedule_low_priority_values_first,
          .preempt = !settings.disable_priority_preemption,
          .preemption_threshold = settings.priority_preemption_threshold,
          .refuse_when_disabled = settings.abort_on_priority_when_disabled};
}

// A century is for ever.
Duration seconds(double count) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(std::min(count, 3.2e9)));
}

Result<SchedulerOptions> scheduler_options(const Runner& runner, const ServerSettings& settings) {
  const MemoryPlan& plan = runner.plan();
  const EngineInfo& info = runner.info();
  HOCKET_TRY(const SchedulePolicy policy,
             parse_schedule_policy(settings.scheduler.schedule_policy));
  HOCKET_TRY(const EvictionPolicy eviction,
             parse_eviction_policy(settings.scheduler.radix_eviction_policy));
  return SchedulerOptions{.num_pages = plan.num_pages,
                          .page_tokens = info.page_tokens,
                          .max_running_requests = plan.max_running_requests,
                          .max_queued_requests = settings.memory.max_queued_requests,
                          .max_queued_tokens = settings.memory.max_queued_tokens,
                          .chunk_tokens = plan.chunk_tokens,
                          .max_prefill_tokens = plan.max_prefill_tokens,
                          .mixed_chunks = settings.scheduler.enable_mixed_chunk,
                          .conservativeness = settings.scheduler.schedule_conservativeness,
                          .policy = policy,
                          .prefix_cache = !settings.scheduler.disable_radix_cache,
                          .eviction = eviction,
                          .context_length = plan.context_length,
                          .eos_ids = info.model.eos_ids,
                          .vocab_size = info.model.vocab_size,
                          .priorities = priority_options(settings.scheduler),
                          .waiting_timeout = seconds(settings.scheduler.waiting_timeout_s),
                          .running_timeout = seconds(settings.scheduler.running_timeout_s),
                          .prefill_max_requests = settings.scheduler.prefill_max_requests,
                          .in_batch = {.most_cached = settings.scheduler.in_batch_prefix_check,
                                       .least_common = settings.scheduler.in_batch_prefix_common},
                          .seed = static_cast<uint64_t>(settings.scheduler.schedule_seed)};
}

Result<SchedulerOptions> checked(Result<SchedulerOptions> options) {
  if (options) HOCKET_TRY_VOID(check(*options));
  return options;
}

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
  const WorkLimits& work = runner->plan().work;
  forward_batch.reserve(work.max_rows, 2 * (options.max_running_requests + 1));
  outputs.reserve(work.max_output_rows);
  sample_rows.reserve(work.max_logits_rows);
  sampled.reserve(work.max_output_rows);
  logprobs.reserve(work.max_output_rows);
  last_turn_ns = clock.now().time_since_epoch().count();
}

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Engine::~Engine() {
  stop();
}

Result<std::unique_ptr<Engine>> Engine::create(Options options) {
  HOCKET_TRY(std::unique_ptr<Runner> runner,
             Runner::create({.settings = options.settings,
                             .progress = std::move(options.progress),
                             .tokenizer_eos = options.tokenizer_eos}));
  HOCKET_TRY(SchedulerOptions scheduler, checked(scheduler_options(*runner, options.settings)));
  std::unique_ptr<KvEventChannel> events;
  if (options.settings.scheduler.kv_events)
    events = std::make_unique<KvEventChannel>(kv_event_capacity(scheduler.num_pages));
  scheduler.kv_events = events.get();
  auto state = std::make_unique<State>(std::move(runner), scheduler, options.clock);
  state->kv_events = std::move(events);
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
  runner->workers().adopt_caller();
  while (!stopping) {
    if (step(box)) continue;
    if (auto command = commands.wait_pop(kIdleWait))
      std::visit([this](auto& c) { handle(c); }, *command);
  }
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
