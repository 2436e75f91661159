// Fills a prefill pass: prompts in chunks first, then waiting requests, then longer chunks.
#include <algorithm>
#include <new>
#include <ranges>
#include <utility>

#include "base/check.h"
#include "policy/scheduler/prefill_pass.h"
#include "policy/scheduler/scheduler_state.h"

namespace hocket {
namespace {

// Answers have each second step while window pages give a prompt less than 1 / kMinRowsDivisor of
// its rows.
constexpr int64_t kMinRowsDivisor = 4;

}  // namespace

// Precondition: the decode rows of this pass, of running.ready(), already have their pages.
void Scheduler::State::prefill() {
  if (chunked.empty() && (pause.lasts() || waiting.empty())) return;
  const bool begins_allowed = options.hooks == nullptr || options.hooks->may_begin();
  if (chunked.empty() && !begins_allowed) return;
  PrefillPass(*this, begins_allowed).run();
}

PrefillBudget Scheduler::State::prefill_budget() const {
  PrefillBudget budget{.page_tokens = page_tokens(),
                       .chunk_tokens = chunk_tokens(),
                       .max_prefill_tokens = options.max_prefill_tokens,
                       .num_decode_rows = num_answer_rows(),
                       .reserved_tokens = running.reserved_tokens(ratio.now()),
                       .nothing_running = running.empty() && leaving.empty(),
                       .max_requests = options.prefill_max_requests,
                       .play_to_the_end = !options.prefix_cache};
  if (budget.play_to_the_end) budget.growths = running.growths(ratio.now());
  return budget;
}

PrefillPass::PrefillPass(Scheduler::State& state, bool begins_allowed)
    : s_(state),
      begins_allowed_(begins_allowed),
      num_decodable_(state.running.size()),
      adder_(state.prefill_budget()) {
  const SchedulerOptions& options = s_.options;
  if (options.prefill_policy != PrefillPolicy::latency) return;
  decoding_ = s_.decode_shape();
  const double beside = to_seconds(s_.pacing.times.predict(decoding_)) / (1 - options.prompt_share);
  goal_ = options.prompt_share > 0 ? std::max(options.itl_goal, from_seconds(beside))
                                   : options.itl_goal;
}

void PrefillPass::run() {
  if (may_begin()) s_.waiting.begin_pass(s_.cache, s_.progress);
  if (!continue_chunked()) return;
  if (may_begin()) admit_waiting();
  lengthen_chunks();
}

// Returns the longest chunk; under PrefillPolicy::latency prompts are always cut.
int Scheduler::State::chunk_tokens() const {
  const bool whole = options.chunk_tokens < 0;
  return whole && options.prefill_policy == PrefillPolicy::latency ? options.max_prefill_tokens
                                                                   : options.chunk_tokens;
}

StepShape Scheduler::State::decode_shape() const {
  StepShape shape;
  for (const auto& request : running.ready()) {
    if (!request->decodes()) continue;
    const int rows = request->uncomputed();
    (rows == 1 ? shape.decode_rows : shape.prefill_rows) += rows;
    shape.keys += keys_of_rows(request->computed_len, rows);
  }
  return shape;
}

// Under PrefillPolicy::latency, limits the rows of a prompt whose next row is at `begin` to those
// that fit into the step's time goal. The first prompt of a pass gets at least a page.
void PrefillPass::pace(int begin) {
  if (decoding_.keys == 0) return;
  StepShape others = shape_of(s_.batch());
  const bool first = others.prefill_rows == 0;
  others.decode_rows += decoding_.decode_rows;
  others.prefill_rows += decoding_.prefill_rows;
  others.keys += decoding_.keys;
  const int rows = s_.pacing.times.prefill_rows_within(
      goal_, others, begin,
      {.min_rows = first ? s_.page_tokens() : 0, .max_rows = s_.chunk_tokens()});
  adder_.allow(rows);
  if (first) s_.pacing.chunk_tokens = rows;
}

bool PrefillPass::may_preempt() const {
  return s_.options.priorities.enabled && s_.options.priorities.preempt;
}

// Asks the constraints that cost nothing: rows, memory, places. The head costs look-ups in the
// prefix tree, so it is asked for only behind them, or if it may displace others.
AddResult PrefillPass::verdict() const {
  const AddResult verdict = adder_.verdict(s_.available_tokens());
  if (verdict != AddResult::added || may_preempt()) return verdict;
  const bool has_place = s_.num_active() < s_.options.max_running_requests;
  return has_place ? AddResult::added : AddResult::no_tokens;
}

void PrefillPass::admit_waiting() {
  if (s_.waiting.empty()) return;
  AddResult verdict = this->verdict();
  while (verdict == AddResult::added) {
    const Request* head = s_.waiting.head();
    if (head == nullptr || std::ranges::find(preempted_, head) != preempted_.end()) return;
    const bool waits = prefix_is_under_way(*head);
    s_.counters.num_prefix_waits_total += waits ? 1 : 0;
    if (waits || (s_.options.hooks != nullptr && !s_.options.hooks->may_join(*head))) {
      s_.waiting.skip_head();
      continue;
    }
    if (!s_.reserve_lists(*s_.waiting.head())) {
      s_.close(s_.waiting.take_head());
      continue;
    }
    const bool has_slot = s_.num_active() < s_.options.max_running_requests;
    verdict = has_slot ? admit() : AddResult::no_tokens;
    if (verdict == AddResult::no_tokens && preempt_for_head()) verdict = admit();
    if (verdict == AddResult::added) verdict = this->verdict();
  }
  if (verdict == AddResult::no_tokens) s_.pause.begin();
}

// Returns true if a prompt that is in this pass, in flight or in chunks will soon put enough tokens
// of this one into the cache that waiting for them is worth it.
bool PrefillPass::prefix_is_under_way(const Request& request) const {
  if (s_.options.in_batch.max_cached < 0 || !s_.options.prefix_cache) return false;
  const auto least = static_cast<size_t>(s_.options.in_batch.least_common);
  const auto reusable = request.reusable_tokens();
  if (reusable.size() < least) return false;
  size_t common = 0;
  const auto compare = [&](const Request& other) {
    if (other.cache_namespace != request.cache_namespace) return;
    size_t same = common_len(other.tokens, reusable);
    if (s_.states
            .enabled()) {  // the other prompt leaves its pages behind, but a state at one border
      const auto border = static_cast<size_t>(s_.states.last_cached_border(other));
      same = border <= same ? border : 0;
    }
    common = std::max(common, same);
  };
  for (const auto& other : s_.chunked) compare(*other);
  // Requests whose last chunk is not committed are the newest of `running`.
  for (const auto& other : s_.running.requests() | std::views::reverse) {
    if (other->state != Request::State::prefilling) break;
    compare(*other);
  }
  const size_t coming = common - common % static_cast<size_t>(s_.page_tokens());
  if (coming < least) return false;
  const auto cached = static_cast<size_t>(s_.cache.match_len(request.cache_namespace, reusable));
  return coming >= cached + least;
}

// Continues prompts in chunks, in order of admission. Returns false if one waits for memory; then
// no other prompt may begin.
bool PrefillPass::continue_chunked() {
  bool has_room = true;
  int parts = num_parts(static_cast<int>(s_.chunked.size()));
  std::erase_if(s_.chunked, [&](std::unique_ptr<Request>& request) {
    pace(request->computed_len);
    if (!has_room || adder_.limit() < s_.page_tokens()) return false;
    has_room = continue_chunk(*request, parts--);
    if (!has_room || !s_.batch().slices.back().is_sampled) return false;
    s_.running.add(std::move(request));
    return true;
  });
  if (!has_room) {
    // Otherwise no page would ever be freed: a prompt begins only if prompts in chunks can finish.
    const bool others_hold_pages =
        !s_.batch().empty() || !s_.running.empty() || !s_.leaving.empty() || s_.batches.has_rows();
    HOCKET_CHECK(others_hold_pages);
    return false;
  }
  return true;
}

bool PrefillPass::may_begin() const {
  return !s_.pause.lasts() && begins_allowed_;
}

// Returns how many prompts share the rest of the pass; `num_here` of them are in chunks already.
int PrefillPass::num_parts(int num_here) const {
  const int seats = s_.options.max_chunked_requests - static_cast<int>(s_.chunked.size());
  return std::max(1, num_here + (may_begin() ? std::min(seats, s_.waiting.size()) : 0));
}

int PrefillPass::rows_of_others(int parts) const {
  return s_.options.max_chunked_requests == 1 ? 0 : adder_.limit() - adder_.limit() / parts;
}

bool PrefillPass::continue_chunk(Request& request, int parts) {
  // Shorter waiting prompts may have up to half of the pass.
  const int shorter =
      s_.waiting.num_short_rows(request.uncomputed(), adder_.limit() / 2, s_.page_tokens());
  const int window_room = s_.window_room(&request);
  const int64_t wanted = std::min(request.uncomputed(), adder_.limit());
  if (kMinRowsDivisor * window_room * s_.page_tokens() < wanted) s_.short_of_windows = true;
  const Admission admission =
      adder_.continue_chunked({.total_len = static_cast<int>(request.tokens.size()),
                               .prefix_len = request.computed_len,
                               .prefix_pages = static_cast<int>(request.pages.size()),
                               .remaining_new_tokens = request.remaining_new_tokens(),
                               .spare_rows = std::max(shorter, rows_of_others(parts)),
                               .window_room = window_room},
                              s_.available_tokens());
  if (admission.result != AddResult::added) return false;
  s_.add_rows(request, admission.len);
  return true;
}

// Gives unused rows of the pass to prompts that were cut to leave rows for others.
void PrefillPass::lengthen_chunks() {
  if (s_.options.max_chunked_requests == 1) return;
  std::erase_if(s_.chunked, [&](std::unique_ptr<Request>& request) {
    const auto slice = std::ranges::find(s_.batch().slices, request.get(), &Slice::request);
    if (slice == s_.batch().slices.end()) return false;
    pace(slice->begin + slice->len);
    if (adder_.limit() < s_.page_tokens()) return false;
    const Admission admission =
        adder_.continue_chunked({.total_len = static_cast<int>(request->tokens.size()),
                                 .prefix_len = slice->begin + slice->len,
                                 .prefix_pages = static_cast<int>(request->pages.size()),
                                 .remaining_new_tokens = request->remaining_new_tokens(),
                                 .window_room = s_.window_room(request.get())},
                                s_.available_tokens());
    if (admission.result != AddResult::added) return false;
    s_.lengthen(*slice, admission.len);
    if (!slice->is_sampled) return false;
    s_.running.add(std::move(request));
    return true;
  });
}

// Reserves the token and page lists at the largest size that the request can reach. Returns false
// if memory is short; the request then ends with that error.
bool Scheduler::State::reserve_lists(Request& request) {
  const int max_len = request.prompt_len + request.sampling.max_new_tokens;
  try {
    request.tokens.reserve(static_cast<size_t>(max_len));
    request.pages.reserve(static_cast<size_t>(pages_for(max_len, page_tokens())));
    if (has_windows()) request.window.pages.reserve(request.pages.capacity());
    // Two steps may be in flight.
    if (states.enabled()) request.states.coming.reserve(2 * kMaxStateSlots);
    return true;
  } catch (const std::bad_alloc&) {
    fail_request(request, error(ErrorCode::out_of_memory,
                                "no memory is left to keep {} tokens of the request", max_len)
                              .with_fix("ask again later, or set a smaller max_tokens"));
    return false;
  }
}

PrefillCandidate PrefillPass::candidate(const Request& request, const PrefixMatch& match,
                                        int spare) const {
  return {.total_len = static_cast<int>(request.tokens.size()),
          .prefix_len = match.len(s_.page_tokens()),
          .prefix_pages = static_cast<int>(match.pages.size()),
          .remaining_new_tokens = request.remaining_new_tokens(),
          .ignore_eos = request.sampling.ignore_eos,
          .spare_rows = spare,
          .may_be_cut = std::ssize(s_.chunked) < s_.options.max_chunked_requests,
          .window_room = s_.window_room(nullptr),
          .window_need = s_.max_window_pages(request, static_cast<int>(match.pages.size()))};
}

// Tries the head of the queue. The first that does not fit ends the pass, so that a big request is
// not overtaken.
AddResult PrefillPass::admit() {
  const Request& head = *s_.waiting.head();
  const auto reusable = head.reusable_tokens();
  PrefixMatch match = s_.cache.match(head.cache_namespace, reusable);
  if (!s_.states.has_room()) {
    // Each place has two slots. More are held only for states that steps in flight compute.
    HOCKET_CHECK(s_.batches.has_rows());
    s_.must_settle = true;
    return AddResult::no_tokens;
  }
  pace(match.len(s_.page_tokens()));
  const int spare = rows_of_others(num_parts(0));
  Admission admission = adder_.add(candidate(head, match, spare), s_.available_tokens());
  if (admission.result == AddResult::no_tokens && adder_.alone()) {
    // A request that is alone always fits, unless the page to copy from is pinned: drop that page.
    const auto whole_pages = match.pages.size() * static_cast<size_t>(s_.page_tokens());
    match = PrefixMatch();
    match = s_.cache.match(head.cache_namespace, reusable.first(whole_pages));
    admission = adder_.add(candidate(head, match, spare), s_.available_tokens());
    HOCKET_CHECK(admission.result == AddResult::added);
  }
  if (admission.result == AddResult::added) start(std::move(match), admission.len);
  return admission.result;
}

// Admits the head. Precondition: reserve_lists() returned true.
void PrefillPass::start(PrefixMatch match, int len) {
  std::unique_ptr<Request> owned = s_.waiting.take_head();
  Request& request = *owned;
  s_.waiting.admitted(request,
                      static_cast<int>(request.tokens.size()) - match.len(s_.page_tokens()));
  request.pages.assign(match.pages.begin(), match.pages.end());
  request.leased_pages = static_cast<int>(match.pages.size());
  request.computed_len = match.len(s_.page_tokens());
  s_.batch().cached_tokens += request.computed_len;
  request.lease = std::move(match.lease);
  request.state = Request::State::prefilling;
  s_.states.begin(request, match);
  s_.begin_window(request, match);
  if (request.num_retractions == 0) {
    request.times.first_scheduled = s_.now;
    // A request that goes on with an answer may also find tokens of the answer.
    request.cached_len = std::min(request.computed_len, request.prompt_len);
    request.recomputed_len =
        std::max(0, std::min(match.longest_len, request.prompt_len) - request.computed_len);
    s_.counters.recomputed_tokens_total += static_cast<uint64_t>(request.recomputed_len);
    s_.counters.prompt_tokens_total += static_cast<uint64_t>(request.prompt_len);
    s_.counters.cached_tokens_total += static_cast<uint64_t>(request.cached_len);
  }
  s_.add_rows(request, len);
  if (match.partial_len > 0)
    s_.batch().copies.push_back(
        {match.partial_source, request.pages[match.pages.size()], match.partial_len,
         match.window_partial_source,
         s_.has_windows() ? request.window.pages[match.pages.size()] : kNoPage});
  if (s_.batch().slices.back().is_sampled) {
    s_.running.add(std::move(owned));
  } else {
    s_.chunked.push_back(std::move(owned));
  }
}

}  // namespace hocket
