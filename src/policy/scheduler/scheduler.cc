#include "policy/scheduler/scheduler.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "base/check.h"
#include "policy/scheduler/scheduler_state.h"

namespace hocket {

Scheduler::Scheduler(SchedulerOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
Scheduler::~Scheduler() = default;

Result<void> Scheduler::add(RequestInput input) {
  try {
    return state_->add(std::move(input));
  } catch (const std::bad_alloc&) {
    return fail(error(ErrorCode::out_of_memory, "no memory is left to let the request wait")
                    .with_fix("try again later, or send a shorter prompt"));
  }
}

bool Scheduler::abort(RequestId id, FinishReason reason, Error error) {
  return state_->abort(id, reason, std::move(error));
}

const Batch& Scheduler::schedule(TimePoint now) {
  state_->now = now;
  state_->memory.cache.emit_to_listeners();
  state_->memory.sessions.expire(now);
  state_->schedule();
  return state_->batches.newest();
}

void Scheduler::note_duration(const Batch& batch, Duration took) {
  if (state_->options.prefill_policy != PrefillPolicy::latency || batch.slices.empty()) return;
  LatencyPacing& pacing = state_->pacing;
  pacing.times.note(shape_of(batch), took);
  if (batch.num_answers() > 0) pacing.num_drafts = batch.num_drafts;
}

void Scheduler::commit(const Batch& batch, std::span<const SampledToken> sampled, TimePoint now) {
  HOCKET_CHECK(state_->batches.is_oldest(batch));
  state_->now = now;
  state_->commit(sampled);
}

int Scheduler::undo_steps(const Error& why, TimePoint now) {
  state_->now = now;
  return state_->undo_steps(why);
}

std::vector<std::unique_ptr<Request>> Scheduler::take_finished() {
  return state_->lists.take_finished();
}

size_t Scheduler::continuation(const Request& request, std::span<TokenId> out) const {
  // Until its prompt is committed, a request's lease may reach into a page that it copied.
  if (request.state != Request::State::running) return 0;
  const auto rest = std::span(request.tokens).subspan(static_cast<size_t>(request.lease.len()));
  return state_->memory.cache.continuation(request.cache_namespace, request.lease, rest, out);
}

bool Scheduler::has_finished() const {
  return state_->lists.num_finished() > 0;
}

NextStepForecast Scheduler::forecast_next_step() const {
  return state_->forecast_next_step();
}

int64_t Scheduler::num_prompt_rows(int64_t most) const {
  int64_t rows = 0;
  for (const auto& request : state_->lists.chunked) rows += request->uncomputed();
  return std::min(
      most, rows + state_->lists.waiting.num_uncached_rows(state_->memory.cache, most - rows));
}

bool Scheduler::idle() const {
  return state_->lists.idle();
}

SchedulerStats Scheduler::stats() const {
  const State& s = *state_;
  const KvMemory& memory = s.memory;
  const WaitingQueue& waiting = s.lists.waiting;
  SchedulerStats stats;
  static_cast<SchedulerCounters&>(stats) = s.counters;
  stats.num_running = s.lists.num_active();
  stats.num_waiting = waiting.size();
  stats.num_sessions = memory.sessions.size();
  stats.num_held = waiting.num_held();
  stats.num_waiting_tokens = waiting.num_tokens();
  stats.num_pages = memory.pages.num_pages();
  stats.num_free_pages = memory.pages.num_free();
  stats.num_cached_pages = memory.cache.num_cached_pages();
  s.lists.for_each_with_memory(
      [&](const Request& request) { stats.num_private_pages += request.num_own_pages(); });
  stats.num_states = memory.states.num_slots();
  stats.num_free_states = memory.states.num_free();
  stats.num_cached_states = memory.cache.num_states();
  stats.num_evicted_states_total = memory.cache.num_evicted_states_total();
  if (memory.windows.enabled()) {
    stats.num_window_pages = memory.windows.num_pages();
    stats.num_free_window_pages = memory.windows.num_free();
    stats.num_cached_window_pages = memory.cache.num_window_pages();
    stats.num_evicted_window_pages_total = memory.cache.num_evicted_window_pages_total();
  }
  const int64_t pool_tokens = int64_t{memory.pages.num_pages()} * memory.page_tokens();
  stats.num_used_tokens = pool_tokens - memory.available_tokens();
  stats.token_usage = static_cast<double>(stats.num_used_tokens) / static_cast<double>(pool_tokens);
  stats.new_token_ratio = s.ratio.now();
  stats.num_evicted_pages_total = memory.cache.num_evicted_total();
  stats.num_policy_fallbacks_total = waiting.num_fallbacks();
  stats.itl_chunk_tokens = s.pacing.chunk_tokens;
  if (s.options.prefill_policy == PrefillPolicy::latency)
    stats.step_time_error = s.pacing.times.error();
  return stats;
}

size_t Scheduler::snapshot(std::span<RequestSnapshot> out) const {
  const RequestLists& lists = state_->lists;
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
  for (const auto& request : lists.running.requests())
    if (!add(*request, RequestSnapshot::Where::running)) return count;
  for (const auto& request : lists.chunked)
    if (!add(*request, RequestSnapshot::Where::prefilling)) return count;
  for (int i = 0; i < lists.waiting.size(); ++i)
    if (!add(lists.waiting.at(i), RequestSnapshot::Where::waiting)) return count;
  for (const auto& request : lists.waiting.held())
    if (!add(*request, RequestSnapshot::Where::held)) return count;
  return count;
}

int Scheduler::cached_len(const CacheNamespace& name_space, std::span<const TokenId> tokens) const {
  const int len = state_->memory.cache.match_len(name_space, tokens);
  return len - len % state_->memory.page_tokens();
}

int Scheduler::in_tree_len(const CacheNamespace& name_space,
                           std::span<const TokenId> tokens) const {
  return state_->memory.page_tokens() * state_->memory.cache.num_pages_in_tree(name_space, tokens);
}

const SessionTokens* Scheduler::session_tokens(SessionKey key) const {
  return state_->memory.sessions.find(key);
}

void Scheduler::protect_session(SessionKey key, const CacheNamespace& name_space,
                                std::span<const TokenId> tokens, TimePoint now) {
  state_->memory.sessions.protect(key, name_space, tokens, now);
}

bool Scheduler::end_session(SessionKey key) {
  return state_->memory.sessions.end(key);
}

int Scheduler::num_available_pages() const {
  return state_->memory.num_available_pages();
}

std::vector<PageId> Scheduler::pages_in_tree(const CacheNamespace& name_space,
                                             std::span<const TokenId> tokens) const {
  return state_->memory.cache.pages_in_tree(name_space, tokens);
}

int Scheduler::state_in_tree(const CacheNamespace& name_space,
                             std::span<const TokenId> tokens) const {
  return state_->memory.cache.state_in_tree(name_space, tokens);
}

std::vector<PageId> Scheduler::window_in_tree(const CacheNamespace& name_space,
                                              std::span<const TokenId> tokens) const {
  return state_->memory.cache.window_in_tree(name_space, tokens);
}

bool Scheduler::restore(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                        int max_pages, const std::function<void(std::span<const PageId>)>& fill) {
  HOCKET_CHECK(!state_->batches.has_rows());
  const std::optional<int> restored = state_->memory.restore(name_space, tokens, max_pages, fill);
  if (!restored) return false;
  if (*restored > 0) state_->pause.end();
  state_->counters.restored_tokens_total +=
      static_cast<uint64_t>(*restored) * static_cast<uint64_t>(state_->memory.page_tokens());
  return true;
}

bool Scheduler::restore_state(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                              const std::function<void(int slot)>& fill) {
  HOCKET_CHECK(!state_->batches.has_rows());
  if (!state_->memory.restore_state(name_space, tokens, fill)) return false;
  state_->pause.end();
  return true;
}

bool Scheduler::restore_window(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                               const std::function<void(int index, PageId page)>& fill) {
  HOCKET_CHECK(!state_->batches.has_rows());
  if (!state_->memory.restore_window(name_space, tokens, fill)) return false;
  state_->pause.end();
  return true;
}

bool Scheduler::flush_cache() {
  if (!idle()) return false;
  state_->memory.flush();
  return true;
}

void Scheduler::check_integrity() const {
  const KvMemory& memory = state_->memory;
  const RequestLists& lists = state_->lists;
  int num_private_pages = 0;
  StateSlots::OwnedSlots states;
  RequestWindows::OwnedPages windows;
  lists.for_each_with_memory([&](const Request& request) {
    num_private_pages += request.num_own_pages();
    states.add(request);
    if (memory.windows.enabled()) windows.add(request);
  });
  memory.cache.check_integrity();
  memory.states.check(states);
  if (memory.windows.enabled()) memory.windows.check(windows);
  HOCKET_CHECK(memory.pages.num_free() + memory.cache.num_cached_pages() + num_private_pages ==
               memory.pages.num_pages());
  if (lists.num_active() > 0 || lists.has_leaving()) return;
  HOCKET_CHECK(memory.cache.num_evictable_pages() == memory.cache.num_cached_pages());
  HOCKET_CHECK(memory.cache.num_evictable_window_pages() == memory.cache.num_window_pages());
}

}  // namespace hocket
