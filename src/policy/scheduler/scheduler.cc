#include "policy/scheduler/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "policy/scheduler/scheduler_state.h"

namespace hocket {
namespace {

constexpr int64_t kSessionsShare = 50;  // percent of the pages that sessions may keep

}  // namespace

Scheduler::State::State(SchedulerOptions scheduler_options)
    : options(std::move(scheduler_options)),
      pages(options.num_pages, options.page_tokens),
      windows(std::max(options.num_window_pages, 1), options.page_tokens),
      states(options, cache),
      cache(pages, {.enabled = options.prefix_cache,
                    .eviction = options.eviction,
                    .events = options.kv_events,
                    .states = states.allocator(),
                    .windows = options.window.bounded() ? &windows : nullptr,
                    .window = options.window}),
      sessions(cache,
               {.timeout = options.session_timeout,
                .max_tokens = kSessionsShare * options.num_pages * options.page_tokens / 100}),
      waiting({.policy = options.policy,
               .max_requests = options.max_queued_requests,
               .max_tokens = options.max_queued_tokens,
               .prefix_cache = options.prefix_cache,
               .in_batch = options.in_batch,
               .max_overtaken = options.max_overtaken,
               .seed = options.seed}),
      running(options.max_running_requests, options.page_tokens),
      ratio(options.conservativeness) {
  options.max_answer_rows = std::max(options.max_answer_rows, options.max_running_requests);
  const Result<void> sound = check(options);
  if (!sound) log::error("{}", sound.error().message);
  HOCKET_CHECK(sound.has_value());
  const auto most = static_cast<size_t>(options.max_running_requests) + 1;
  batches.reserve(most);
  offers.reserve(most);
  chunked.reserve(static_cast<size_t>(options.max_chunked_requests));
  leaving.reserve(2 * most);
  finished.reserve(2 * most);
}

namespace {

int priority_of(const RequestInput& input, const PriorityOptions& rules) {
  constexpr int kWorst = std::numeric_limits<int>::min();
  if (!rules.enabled) return 0;
  const int given = input.priority.value_or(kWorst);
  if (!input.priority || !rules.low_values_first) return given;
  return given == kWorst ? std::numeric_limits<int>::max() : -given;
}

}  // namespace

int Scheduler::State::num_private_pages() const {
  auto own = [](const Request& request) {
    return static_cast<int>(request.pages.size()) - request.leased_pages;
  };
  int count = 0;
  for (const auto& request : chunked) count += own(*request);
  for (const auto& request : running.requests()) count += own(*request);
  for (const auto& request : leaving) count += own(*request);
  return count;
}

StateSlots::Held Scheduler::State::held_states() const {
  StateSlots::Held all;
  for (const auto& request : chunked) all.add(*request);
  for (const auto& request : running.requests()) all.add(*request);
  for (const auto& request : leaving) all.add(*request);
  return all;
}

// A chunk shorter than a page, or a pass shorter than a chunk, would let prompts wait for ever.
Result<void> check(const SchedulerOptions& o) {
  const auto at_least = [](const char* flag, int64_t given, int64_t least) -> Result<void> {
    if (given >= least) return {};
    return fail(error(ErrorCode::bad_value, "{} is {}, must be at least {}", flag, given, least)
                    .with_fix(fmt::format("{} {}", flag, least))
                    .with_param(flag));
  };
  HOCKET_TRY_VOID(at_least("--max-running-requests", o.max_running_requests, 1));
  HOCKET_CHECK((o.num_states == 0 || o.num_states >= 2 * int64_t{o.max_running_requests}));
  if (o.window.bounded()) {
    const auto least = std::min<int64_t>(o.num_pages, int64_t{2} * window_pages_of_request(o));
    HOCKET_CHECK((o.num_states == 0 && o.num_window_pages >= least));
  }
  HOCKET_TRY_VOID(at_least("--max-queued-requests", o.max_queued_requests, 1));
  HOCKET_TRY_VOID(at_least("--max-queued-tokens", o.max_queued_tokens, 0));
  if (o.chunk_tokens != -1)
    HOCKET_TRY_VOID(at_least("--chunked-prefill-size", o.chunk_tokens, o.page_tokens));
  HOCKET_TRY_VOID(at_least("--max-prefill-tokens", o.max_prefill_tokens,
                           std::max(o.chunk_tokens, o.page_tokens)));
  HOCKET_TRY_VOID(at_least("--prefill-max-requests", o.prefill_max_requests, 0));
  HOCKET_TRY_VOID(at_least("--max-chunked-requests", o.max_chunked_requests, 1));
  if (o.prefill_policy == PrefillPolicy::latency && o.itl_goal <= Duration(0))
    return fail(error(ErrorCode::bad_value, "--prefill-policy latency needs a goal above 0 ms")
                    .with_fix("--itl-slo-ms 100")
                    .with_param("--itl-slo-ms"));
  if (!(std::isfinite(o.conservativeness) && o.conservativeness >= 0))
    return fail(error(ErrorCode::bad_value,
                      "--schedule-conservativeness is {}, must be a number of 0 or more",
                      o.conservativeness)
                    .with_param("--schedule-conservativeness"));
  if (!(o.prompt_share >= 0 && o.prompt_share < 1))
    return fail(ErrorCode::bad_value, "prompts cannot have {} of a step", o.prompt_share);
  HOCKET_TRY_VOID(at_least("--max-overtaken", o.max_overtaken, 0));
  HOCKET_TRY_VOID(
      at_least("--priority-scheduling-preemption-threshold", o.priorities.preemption_threshold, 0));
  HOCKET_TRY_VOID(at_least("--waiting-timeout", o.waiting_timeout.count(), 0));
  HOCKET_TRY_VOID(at_least("--running-timeout", o.running_timeout.count(), 0));
  HOCKET_TRY_VOID(at_least("--in-batch-prefix-check", o.in_batch.max_cached, -1));
  HOCKET_TRY_VOID(at_least("--in-batch-prefix-common", o.in_batch.least_common, 1));
  return {};
}

Scheduler::Scheduler(SchedulerOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
Scheduler::~Scheduler() = default;

Result<void> Scheduler::add(RequestInput input) {
  try {
    return state_->add(std::move(input));
  } catch (const std::bad_alloc&) {
    return fail(error(ErrorCode::out_of_memory, "no memory is left to let the request wait")
                    .with_fix("ask again later, or send a shorter prompt"));
  }
}

// Allocates everything before the request joins the queue, so that it waits or nothing has changed.
Result<void> Scheduler::State::add(RequestInput input) {
  const auto prompt_len = static_cast<int>(input.prompt.size());
  const int max_new_tokens = input.sampling.max_new_tokens;
  HOCKET_CHECK(prompt_len >= 1);
  HOCKET_CHECK(max_new_tokens >= 1);
  HOCKET_CHECK(std::ssize(input.answer) < max_new_tokens);
  const int64_t max_len = int64_t{prompt_len} + max_new_tokens;
  if (options.context_length > 0 && max_len > options.context_length)
    return fail(error(ErrorCode::context_length_exceeded,
                      "{} prompt tokens and {} new ones are {}; the context holds {}", prompt_len,
                      max_new_tokens, max_len, options.context_length)
                    .with_fix("a shorter prompt, or a smaller max_tokens")
                    .with_param("max_tokens"));
  // The last new token is returned but never computed.
  const int64_t pool_tokens = int64_t{options.num_pages} * options.page_tokens;
  if (max_len - 1 > pool_tokens)
    return fail(
        error(ErrorCode::request_too_big,
              "{} prompt tokens and {} new ones can never fit: the KV cache holds {} tokens in all",
              prompt_len, max_new_tokens, pool_tokens)
            .with_fix(prompt_len <= pool_tokens
                          ? fmt::format("max_tokens of at most {}", pool_tokens + 1 - prompt_len)
                          : std::string("a shorter prompt, or more memory for the KV cache"))
            .with_param("max_tokens"));
  HOCKET_TRY_VOID(check_window(prompt_len, max_new_tokens));
  if (input.priority && !options.priorities.enabled && options.priorities.refuse_when_disabled)
    return fail(error(ErrorCode::invalid_request,
                      "the request has priority {}, but priorities are off", *input.priority)
                    .with_fix("leave it out, or start with --enable-priority-scheduling")
                    .with_param("priority"));
  const int priority = priority_of(input, options.priorities);
  const bool skips_limits = input.taken_over;
  const Request* worse =
      options.priorities.enabled && !skips_limits ? waiting.worse_than(priority) : nullptr;
  if (!skips_limits) HOCKET_TRY_VOID(waiting.check_room(prompt_len, worse));

  auto request = std::make_unique<Request>();
  request->caches_whole_answer = options.cache_whole_answers;
  request->id = input.id;
  request->tokens = std::move(input.prompt);
  request->tokens.insert(request->tokens.end(), input.answer.begin(), input.answer.end());
  request->prompt_len = prompt_len;
  request->absorbed_rows = AbsorbedRows(options.answer_begins, options.eos_ids);
  request->form_borders =
      request->absorbed_rows.take_all(std::span(request->tokens).first(prompt_len));
  request->sampling = std::move(input.sampling);
  request->priority = priority;
  request->client = input.client;
  request->routing_key = input.routing_key;
  request->cache_namespace = input.cache_namespace;
  request->session = input.session;
  request->prefill_peer = input.prefill_peer;
  request->prediction = std::move(input.prediction);
  request->taken_over = input.taken_over;
  request->times.arrived = input.arrived;
  bool ready = true;
  if (options.hooks != nullptr) {
    HOCKET_TRY(ready, options.hooks->ready(*request));
  }
  const bool displaces = worse != nullptr && waiting.full();
  const RequestId displaced = displaces ? worse->id : RequestId{};
  Error why = displaces ? prepare_displacement(*worse) : Error{};
  if (ready) {
    waiting.push(std::move(request), input.arrived, progress.rows_total);
    pause.end();
  } else {
    waiting.hold(std::move(request), input.arrived);
  }
  if (displaces) displace(waiting.remove(displaced), std::move(why));
  return {};
}

bool Scheduler::abort(RequestId id, FinishReason reason, Error error) {
  HOCKET_CHECK(reason != FinishReason::none);
  State& s = *state_;
  auto mark = [&](Request& request) {
    request.finish = reason;
    request.error = std::move(error);
  };
  if (std::unique_ptr<Request> request = s.waiting.remove(id)) {
    mark(*request);
    s.pause.end();
    s.close(std::move(request));
    return true;
  }
  Request* active = nullptr;
  for (const auto& request : s.chunked)
    if (request->id == id) active = request.get();
  for (const auto& request : s.running.requests())
    if (request->id == id) active = request.get();
  if (active == nullptr) return false;
  mark(*active);
  s.pause.end();
  s.remove_ended();
  return true;
}

const Batch& Scheduler::schedule(TimePoint now) {
  state_->now = now;
  state_->cache.emit_to_listeners();
  state_->sessions.expire(now);
  state_->schedule();
  return state_->batches.newest();
}

void Scheduler::note_duration(const Batch& batch, Duration took) {
  if (state_->options.prefill_policy == PrefillPolicy::latency && !batch.slices.empty())
    state_->pacing.times.note(shape_of(batch), took);
}

void Scheduler::commit(const Batch& batch, std::span<const SampledToken> sampled, TimePoint now) {
  HOCKET_CHECK(state_->batches.is_oldest(batch));
  state_->now = now;
  state_->commit(sampled);
}

std::vector<std::unique_ptr<Request>> Scheduler::take_finished() {
  return std::exchange(state_->finished, {});
}
size_t Scheduler::continuation(const Request& request, std::span<TokenId> out) const {
  // Until its prompt is committed, a request's lease may reach into a page that it copied.
  if (request.state != Request::State::running) return 0;
  const auto rest = std::span(request.tokens).subspan(static_cast<size_t>(request.lease.len()));
  return state_->cache.continuation(request.cache_namespace, request.lease, rest, out);
}

bool Scheduler::has_finished() const {
  return !state_->finished.empty();
}

NextStepForecast Scheduler::forecast_next_step() const {
  return state_->forecast_next_step();
}

bool Scheduler::idle() const {
  const State& s = *state_;
  return s.num_active() == 0 && s.leaving.empty() && s.waiting.empty() && s.waiting.num_held() == 0;
}

SchedulerStats Scheduler::stats() const {
  const State& s = *state_;
  SchedulerStats stats;
  static_cast<SchedulerCounters&>(stats) = s.counters;
  stats.num_running = s.num_active();
  stats.num_waiting = s.waiting.size();
  stats.num_sessions = s.sessions.size();
  stats.num_held = s.waiting.num_held();
  stats.num_waiting_tokens = s.waiting.num_tokens();
  stats.num_pages = s.pages.num_pages();
  stats.num_free_pages = s.pages.num_free();
  stats.num_cached_pages = s.cache.num_cached_pages();
  stats.num_private_pages = s.num_private_pages();
  stats.num_states = s.states.num_slots();
  stats.num_free_states = s.states.num_free();
  stats.num_cached_states = s.cache.num_states();
  stats.num_evicted_states_total = s.cache.num_evicted_states_total();
  if (s.has_windows()) {
    stats.num_window_pages = s.windows.num_pages();
    stats.num_free_window_pages = s.windows.num_free();
    stats.num_cached_window_pages = s.cache.num_window_pages();
    stats.num_evicted_window_pages_total = s.cache.num_evicted_window_pages_total();
  }
  stats.num_used_tokens = s.num_used_tokens();
  stats.token_usage = s.token_usage();
  stats.new_token_ratio = s.ratio.now();
  stats.num_evicted_pages_total = s.cache.num_evicted_total();
  stats.num_policy_fallbacks_total = s.waiting.num_fallbacks();
  stats.itl_chunk_tokens = s.pacing.chunk_tokens;
  if (s.options.prefill_policy == PrefillPolicy::latency)
    stats.step_time_error = s.pacing.times.error();
  return stats;
}

size_t Scheduler::snapshot(std::span<RequestSnapshot> out) const {
  const State& s = *state_;
  size_t count = 0;
  const auto add = [&](const Request& request, RequestSnapshot::Where where) {
    if (count == out.size()) return false;
    out[count++] = {.id = request.id,
                    .where = where,
                    .prompt_tokens = request.prompt_len,
                    .computed_tokens = std::min(request.computed_len, request.prompt_len),
                    .cached_tokens = request.cached_len,
                    .generated_tokens = request.generated(),
                    .num_retractions = request.num_retractions};
    return true;
  };
  for (const auto& request : s.running.requests())
    if (!add(*request, RequestSnapshot::Where::running)) return count;
  for (const auto& request : s.chunked)
    if (!add(*request, RequestSnapshot::Where::prefilling)) return count;
  for (int i = 0; i < s.waiting.size(); ++i)
    if (!add(s.waiting.at(i), RequestSnapshot::Where::waiting)) return count;
  for (const auto& request : s.waiting.held())
    if (!add(*request, RequestSnapshot::Where::held)) return count;
  return count;
}

bool Scheduler::flush_cache() {
  if (!idle()) return false;
  state_->sessions.clear();
  state_->cache.flush();
  ++state_->progress.cache_generation;
  return true;
}

void Scheduler::check_integrity() const {
  const State& s = *state_;
  s.cache.check_integrity();
  s.states.check(s.held_states());
  if (s.has_windows()) s.check_windows();
  HOCKET_CHECK(s.pages.num_free() + s.cache.num_cached_pages() + s.num_private_pages() ==
               s.pages.num_pages());
  if (idle()) HOCKET_CHECK(s.cache.num_evictable_pages() == s.cache.num_cached_pages());
}

}  // namespace hocket
