// Fills a prefill pass: prompts in chunks first, then waiting requests, then longer chunks.
#include <algorithm>
#include <new>
#include <ranges>
#include <utility>

#include "base/check.h"
#include "policy/scheduler/scheduler_state.h"

namespace hocket {

// Pre: the decode rows of this pass, of the first num_decoding requests, already have their pages.
void Scheduler::State::prefill() {
  if (chunked.empty() && (admission_blocked || waiting.empty())) return;
  closed = options.hooks != nullptr && !options.hooks->may_begin();
  if (chunked.empty() && closed) return;
  num_decodable = running.size();
  preempted.clear();
  PrefillBudget budget{.page_tokens = page_tokens(),
                       .chunk_tokens = chunk_tokens(),
                       .max_prefill_tokens = options.max_prefill_tokens,
                       .num_decode_rows = num_answer_rows(),
                       .reserved_tokens = running.reserved_tokens(ratio.now()),
                       .nothing_running = running.empty() && leaving.empty(),
                       .max_requests = options.prefill_max_requests,
                       .play_to_the_end = !options.prefix_cache};
  if (budget.play_to_the_end) budget.growths = running.growths(ratio.now());
  PrefillAdder adder(std::move(budget));
  if (options.prefill_policy == PrefillPolicy::latency) {
    decoding = decode_shape();
    const double beside = to_seconds(times.predict(decoding)) / (1 - options.prompt_share);
    goal = options.prompt_share > 0 ? std::max(options.itl_goal, from_seconds(beside))
                                    : options.itl_goal;
  }
  if (may_begin())
    waiting.begin_pass(cache, {.cache_generation = cache_generation, .rows_total = rows_total});
  if (!continue_chunked(adder)) return;
  if (may_begin()) admit_waiting(adder);
  lengthen_chunks(adder);
}

// Returns the longest chunk; under PrefillPolicy::latency prompts are always cut.
int Scheduler::State::chunk_tokens() const {
  const bool whole = options.chunk_tokens < 0;
  return whole && options.prefill_policy == PrefillPolicy::latency ? options.max_prefill_tokens
                                                                   : options.chunk_tokens;
}

StepShape Scheduler::State::decode_shape() const {
  StepShape shape;
  for (const auto& request : running.requests().first(static_cast<size_t>(num_decoding))) {
    if (!request->decodes()) continue;
    const int rows = request->uncomputed();
    (rows == 1 ? shape.decode_rows : shape.prefill_rows) += rows;
    shape.keys += keys_of_rows(request->computed_len, rows);
  }
  return shape;
}

// Under PrefillPolicy::latency, limits the rows of a prompt whose next row is at `begin` to those
// that fit into the step's time goal. The first prompt of a pass gets at least a page.
void Scheduler::State::pace(PrefillAdder& adder, int begin) {
  if (decoding.keys == 0) return;
  StepShape others = shape_of(*batch);
  const bool first = others.prefill_rows == 0;
  others.decode_rows += decoding.decode_rows;
  others.prefill_rows += decoding.prefill_rows;
  others.keys += decoding.keys;
  const int rows = times.prefill_rows_within(
      goal, others, begin, {.at_least = first ? page_tokens() : 0, .most = chunk_tokens()});
  adder.allow(rows);
  if (first) itl_chunk_tokens = rows;
}

void Scheduler::State::admit_waiting(PrefillAdder& adder) {
  if (waiting.empty()) return;
  AddResult verdict = adder.verdict(available_tokens());
  while (verdict == AddResult::added) {
    const Request* head = waiting.head();
    if (head == nullptr || std::ranges::find(preempted, head) != preempted.end()) return;
    const bool waits = prefix_is_under_way(*head);
    counters.num_prefix_waits_total += waits ? 1 : 0;
    if (waits || (options.hooks != nullptr && !options.hooks->may_join(*head))) {
      waiting.skip_head();
      continue;
    }
    if (!reserve_lists(*waiting.head())) {
      close(waiting.take_head());
      continue;
    }
    const bool has_slot = num_active() < options.max_running_requests;
    verdict = has_slot ? admit(adder) : AddResult::no_tokens;
    if (verdict == AddResult::no_tokens && preempt_for_head(adder)) verdict = admit(adder);
    if (verdict == AddResult::added) verdict = adder.verdict(available_tokens());
  }
  if (verdict == AddResult::no_tokens) {
    admission_blocked = true;
    steps_blocked = 0;
  }
}

// Returns true if a prompt that is in this pass, in flight or in chunks will soon put enough tokens
// of this one into the cache that waiting for them is worth it.
bool Scheduler::State::prefix_is_under_way(const Request& request) const {
  if (options.in_batch.most_cached < 0 || !options.prefix_cache) return false;
  const auto least = static_cast<size_t>(options.in_batch.least_common);
  const auto reusable = request.reusable_tokens();
  if (reusable.size() < least) return false;
  size_t common = 0;
  const auto compare = [&](const Request& other) {
    if (other.cache_namespace == request.cache_namespace)
      common = std::max(common, common_len(other.tokens, reusable));
  };
  for (const auto& other : chunked) compare(*other);
  // Requests whose last chunk is not committed are the newest of `running`.
  for (const auto& other : running.requests() | std::views::reverse) {
    if (other->state != Request::State::prefilling) break;
    compare(*other);
  }
  const size_t coming = common - common % static_cast<size_t>(page_tokens());
  if (coming < least) return false;
  const auto cached = static_cast<size_t>(cache.match_len(request.cache_namespace, reusable));
  return coming >= cached + least;
}

// Continues prompts in chunks, in order of admission. Returns false if one waits for memory; then
// no other prompt may begin.
bool Scheduler::State::continue_chunked(PrefillAdder& adder) {
  bool has_room = true;
  int parts = num_parts(static_cast<int>(chunked.size()));
  std::erase_if(chunked, [&](std::unique_ptr<Request>& request) {
    pace(adder, request->computed_len);
    if (!has_room || adder.limit() < page_tokens()) return false;
    has_room = continue_chunk(adder, *request, parts--);
    if (!has_room || !batch->slices.back().samples) return false;
    running.add(std::move(request));
    return true;
  });
  if (!has_room) {
    // Otherwise no page would ever be freed: a prompt begins only if prompts in chunks can finish.
    const bool others_hold_pages = !batch->empty() || !running.empty() || !leaving.empty();
    HOCKET_CHECK(others_hold_pages);
    return false;
  }
  return true;
}

bool Scheduler::State::may_begin() const {
  return !admission_blocked && !closed;
}

// Returns how many prompts share the rest of the pass; `num_here` of them are in chunks already.
int Scheduler::State::num_parts(int num_here) const {
  const int seats = options.max_chunked_requests - static_cast<int>(chunked.size());
  return std::max(1, num_here + (may_begin() ? std::min(seats, waiting.size()) : 0));
}

int Scheduler::State::rows_of_others(const PrefillAdder& adder, int parts) const {
  return options.max_chunked_requests == 1 ? 0 : adder.limit() - adder.limit() / parts;
}

bool Scheduler::State::continue_chunk(PrefillAdder& adder, Request& request, int parts) {
  // Shorter waiting prompts may have up to half of the pass.
  const int shorter =
      waiting.num_short_rows(request.uncomputed(), adder.limit() / 2, page_tokens());
  const Admission admission =
      adder.continue_chunked({.total_len = static_cast<int>(request.tokens.size()),
                              .prefix_len = request.computed_len,
                              .prefix_pages = static_cast<int>(request.pages.size()),
                              .new_tokens_left = request.new_tokens_left(),
                              .spare_rows = std::max(shorter, rows_of_others(adder, parts))},
                             available_tokens());
  if (admission.result != AddResult::added) return false;
  add_rows(request, admission.len);
  return true;
}

// Gives unused rows of the pass to prompts that were cut to leave rows for others.
void Scheduler::State::lengthen_chunks(PrefillAdder& adder) {
  if (options.max_chunked_requests == 1) return;
  std::erase_if(chunked, [&](std::unique_ptr<Request>& request) {
    const auto slice = std::ranges::find(batch->slices, request.get(), &Slice::request);
    if (slice == batch->slices.end()) return false;
    pace(adder, slice->begin + slice->len);
    if (adder.limit() < page_tokens()) return false;
    const Admission admission =
        adder.continue_chunked({.total_len = static_cast<int>(request->tokens.size()),
                                .prefix_len = slice->begin + slice->len,
                                .prefix_pages = static_cast<int>(request->pages.size()),
                                .new_tokens_left = request->new_tokens_left()},
                               available_tokens());
    if (admission.result != AddResult::added) return false;
    lengthen(*slice, admission.len);
    if (!slice->samples) return false;
    running.add(std::move(request));
    return true;
  });
}

// Reserves the token and page lists at the largest size that the request can reach. Returns false
// if memory is short; the request then ends with that error.
bool Scheduler::State::reserve_lists(Request& request) {
  const int most_tokens = request.prompt_len + request.sampling.max_new_tokens;
  try {
    request.tokens.reserve(static_cast<size_t>(most_tokens));
    request.pages.reserve(static_cast<size_t>(pages_for(most_tokens, page_tokens())));
    return true;
  } catch (const std::bad_alloc&) {
    fail_request(request, error(ErrorCode::out_of_memory,
                                "no memory is left to keep {} tokens of the request", most_tokens)
                              .with_fix("ask again later, or set a smaller max_tokens"));
    return false;
  }
}

PrefillCandidate Scheduler::State::candidate(const Request& request, const PrefixMatch& match,
                                             int spare) const {
  return {.total_len = static_cast<int>(request.tokens.size()),
          .prefix_len = match.len(page_tokens()),
          .prefix_pages = static_cast<int>(match.pages.size()),
          .new_tokens_left = request.new_tokens_left(),
          .ignore_eos = request.sampling.ignore_eos,
          .spare_rows = spare,
          .may_be_cut = std::ssize(chunked) < options.max_chunked_requests};
}

// Tries the head of the queue. The first that does not fit ends the pass, so that a big request is
// not overtaken.
AddResult Scheduler::State::admit(PrefillAdder& adder) {
  const Request& head = *waiting.head();
  const auto reusable = head.reusable_tokens();
  PrefixMatch match = cache.match(head.cache_namespace, reusable);
  pace(adder, match.len(page_tokens()));
  const int spare = rows_of_others(adder, num_parts(0));
  Admission admission = adder.add(candidate(head, match, spare), available_tokens());
  if (admission.result == AddResult::no_tokens && adder.alone()) {
    // A request that is alone always fits, unless the page to copy from is pinned: drop that page.
    const auto whole_pages = match.pages.size() * static_cast<size_t>(page_tokens());
    match = PrefixMatch();
    match = cache.match(head.cache_namespace, reusable.first(whole_pages));
    admission = adder.add(candidate(head, match, spare), available_tokens());
    HOCKET_CHECK(admission.result == AddResult::added);
  }
  if (admission.result == AddResult::added) start(std::move(match), admission.len);
  return admission.result;
}

// Admits the head. Pre: reserve_lists() returned true.
void Scheduler::State::start(PrefixMatch match, int len) {
  std::unique_ptr<Request> owned = waiting.take_head();
  Request& request = *owned;
  waiting.admitted(request, static_cast<int>(request.tokens.size()) - match.len(page_tokens()));
  request.pages.assign(match.pages.begin(), match.pages.end());
  request.leased_pages = static_cast<int>(match.pages.size());
  request.computed_len = match.len(page_tokens());
  batch->cached_tokens += request.computed_len;
  request.lease = std::move(match.lease);
  request.state = Request::State::prefilling;
  if (request.num_retractions == 0) {
    request.times.first_scheduled = now;
    request.cached_len = request.computed_len;
    counters.prompt_tokens_total += static_cast<uint64_t>(request.prompt_len);
    counters.cached_tokens_total += static_cast<uint64_t>(request.cached_len);
  }
  add_rows(request, len);
  if (match.partial_len > 0)
    batch->copies.push_back(
        {match.partial_source, request.pages[match.pages.size()], match.partial_len});
  if (batch->slices.back().samples) {
    running.add(std::move(owned));
  } else {
    chunked.push_back(std::move(owned));
  }
}

}  // namespace hocket
