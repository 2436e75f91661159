#include "policy/scheduler/prefill_pass.h"

#include <algorithm>
#include <ranges>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "policy/scheduler/scheduler_hooks.h"

namespace hocket {
namespace {

// Answers have each second step while window pages give a prompt less than 1 / kMinRowsDivisor of
// its rows.
constexpr int64_t kMinRowsDivisor = 4;

PrefillBudget budget_of(const SchedulerOptions& options, const RequestLists& lists,
                        const PrefillStep& step) {
  PrefillBudget budget{.page_tokens = options.page_tokens,
                       .chunk_tokens = options.chunk_tokens,
                       .max_prefill_tokens = options.max_prefill_tokens,
                       .num_decode_rows = step.num_decode_rows,
                       .reserved_tokens = lists.running.reserved_tokens(step.ratio),
                       .nothing_running = lists.running.empty() && !lists.has_leaving(),
                       .max_requests = options.prefill_max_requests,
                       .play_to_the_end = !options.prefix_cache};
  if (budget.play_to_the_end) budget.expected = lists.running.expected_tokens(step.ratio);
  return budget;
}

}  // namespace

PrefillPass::PrefillPass(const SchedulerOptions& options, RequestLists& lists, KvMemory& memory,
                         const PrefillStep& step)
    : options_(options),
      lists_(lists),
      memory_(memory),
      step_(step),
      num_decodable_(lists.running.size()),
      adder_(budget_of(options, lists, step)),
      pace_(options, step.pacing, lists.running.ready()) {}

PrefillOutcome PrefillPass::run() {
  if (step_.may_begin)
    lists_.waiting.begin_pass(memory_.cache, {.cache_generation = memory_.cache_generation(),
                                              .rows_total = step_.rows_total});
  if (continue_chunked()) {
    if (step_.may_begin) admit_waiting();
    lengthen_chunks();
  }
  return outcome_;
}

void PrefillPass::pace(int begin) {
  adder_.allow(pace_.max_rows(step_.batch, begin));
}

bool PrefillPass::may_preempt() const {
  return options_.priorities.enabled && options_.priorities.preempt;
}

// Asks the constraints that look nothing up: rows, memory, slots of requests and of their states.
// The head costs look-ups in the prefix tree, so it is asked for only behind them, or if it may
// displace others. Slots of states that steps in flight hold are free once these are committed.
AddResult PrefillPass::verdict() {
  const AddResult verdict = adder_.verdict(memory_.available_tokens());
  if (verdict != AddResult::added || may_preempt()) return verdict;
  if (!lists_.has_slot()) return AddResult::no_tokens;
  return lists_.waiting.empty() || has_state_room() ? AddResult::added : AddResult::no_tokens;
}

void PrefillPass::admit_waiting() {
  if (lists_.waiting.empty()) return;
  AddResult verdict = this->verdict();
  while (verdict == AddResult::added) {
    const Request* head = lists_.waiting.head();
    if (head == nullptr || std::ranges::find(preempted_, head) != preempted_.end()) return;
    if (prefix_is_under_way(*head)) {
      ++step_.counters.num_prefix_waits_total;
      lists_.waiting.skip_head();
      continue;
    }
    if (!memory_.reserve_lists(*lists_.waiting.head())) {
      lists_.close(lists_.waiting.take_head(), step_.now);
      continue;
    }
    verdict = lists_.has_slot() ? admit() : AddResult::no_tokens;
    if (verdict == AddResult::no_tokens && preempt_for_head()) verdict = admit();
    if (verdict == AddResult::added) verdict = this->verdict();
  }
  if (verdict == AddResult::no_tokens) outcome_.no_room = true;
}

// Returns true if a prompt that is in this pass, in flight or in chunks will soon put enough tokens
// of this one into the cache that waiting for them is worth it.
bool PrefillPass::prefix_is_under_way(const Request& request) const {
  if (options_.in_batch.max_cached < 0 || !options_.prefix_cache) return false;
  const auto min_common = static_cast<size_t>(options_.in_batch.min_common);
  const auto reusable = request.reusable_tokens();
  if (reusable.size() < min_common) return false;
  size_t common = 0;
  const auto compare = [&](const Request& other) {
    if (other.cache_namespace != request.cache_namespace) return;
    size_t same = common_len(other.tokens, reusable);
    if (memory_.states.enabled()) {
      // The other prompt leaves its pages behind, but a state at one border only.
      const auto border = static_cast<size_t>(memory_.states.last_cached_border(other));
      same = border <= same ? border : 0;
    }
    common = std::max(common, same);
  };
  for (const auto& other : lists_.chunked) compare(*other);
  // Requests whose last chunk is not committed are the newest of `running`.
  for (const auto& other : lists_.running.requests() | std::views::reverse) {
    if (other->state != Request::State::prefilling) break;
    compare(*other);
  }
  const size_t coming = common - common % static_cast<size_t>(options_.page_tokens);
  if (coming < min_common) return false;
  const auto cached =
      static_cast<size_t>(memory_.cache.match_len(request.cache_namespace, reusable));
  return coming >= cached + min_common;
}

// Continues prompts in chunks, in order of admission. Returns false if one waits for memory; then
// no other prompt may begin.
bool PrefillPass::continue_chunked() {
  bool has_room = true;
  int parts = num_parts(static_cast<int>(lists_.chunked.size()));
  std::erase_if(lists_.chunked, [&](std::unique_ptr<Request>& request) {
    pace(request->computed_len);
    if (!has_room || adder_.limit() < options_.page_tokens) return false;
    has_room = continue_chunk(*request, parts--);
    if (!has_room || !step_.batch.slices.back().is_sampled) return false;
    lists_.running.add(std::move(request));
    return true;
  });
  if (!has_room) {
    // Otherwise no page would ever be freed: a prompt begins only if prompts in chunks can finish.
    const bool others_hold_pages = !step_.batch.empty() || !lists_.running.empty() ||
                                   lists_.has_leaving() || step_.rows_in_flight;
    HOCKET_CHECK(others_hold_pages);
    return false;
  }
  return true;
}

// Returns how many prompts share the rest of the pass; `num_here` of them are in chunks already.
int PrefillPass::num_parts(int num_here) const {
  const int seats = options_.max_chunked_requests - static_cast<int>(lists_.chunked.size());
  return std::max(1, num_here + (step_.may_begin ? std::min(seats, lists_.waiting.size()) : 0));
}

int PrefillPass::rows_of_others(int parts) const {
  return options_.max_chunked_requests == 1 ? 0 : adder_.limit() - adder_.limit() / parts;
}

// Returns the rows of a prompt in chunks that come behind its first computed_len tokens.
PrefillCandidate PrefillPass::chunk_behind(const Request& request, int computed_len) const {
  return {.total_len = static_cast<int>(request.tokens.size()),
          .prefix_len = computed_len,
          .prefix_pages = static_cast<int>(request.pages.size()),
          .remaining_new_tokens = request.remaining_new_tokens(),
          .window_room = window_room(&request)};
}

bool PrefillPass::continue_chunk(Request& request, int parts) {
  // Shorter waiting prompts may have up to half of the pass.
  const int shorter =
      lists_.waiting.num_short_rows(request.uncomputed(), adder_.limit() / 2, options_.page_tokens);
  const int room = window_room(&request);
  const int64_t wanted = std::min(request.uncomputed(), adder_.limit());
  if (kMinRowsDivisor * room * options_.page_tokens < wanted) outcome_.short_of_windows = true;
  PrefillCandidate chunk = chunk_behind(request, request.computed_len);
  chunk.spare_rows = std::max(shorter, rows_of_others(parts));
  const Admission admission = adder_.continue_chunked(chunk, memory_.available_tokens());
  if (admission.result != AddResult::added) return false;
  memory_.take_pages(step_.batch.add_rows(request, admission.len));
  return true;
}

// Gives unused rows of the pass to prompts that were cut to leave rows for others.
void PrefillPass::lengthen_chunks() {
  if (options_.max_chunked_requests == 1) return;
  std::erase_if(lists_.chunked, [&](std::unique_ptr<Request>& request) {
    const auto slice = std::ranges::find(step_.batch.slices, request.get(), &Slice::request);
    if (slice == step_.batch.slices.end()) return false;
    pace(slice->begin + slice->len);
    if (adder_.limit() < options_.page_tokens) return false;
    const Admission admission = adder_.continue_chunked(
        chunk_behind(*request, slice->begin + slice->len), memory_.available_tokens());
    if (admission.result != AddResult::added) return false;
    step_.batch.lengthen(*slice, admission.len);
    memory_.take_pages(*slice);
    if (!slice->is_sampled) return false;
    lists_.running.add(std::move(request));
    return true;
  });
}

int PrefillPass::window_room(const Request* request) const {
  const RequestWindows& windows = memory_.windows;
  int reserved_by_others = 0;
  if (windows.enabled())
    lists_.for_each_active([&](const Request& other) {
      if (&other != request) reserved_by_others += windows.num_reserved(other);
    });
  return windows.room(request, reserved_by_others);
}

PrefillCandidate PrefillPass::candidate(const Request& request, const PrefixMatch& match,
                                        int spare) const {
  return {.total_len = static_cast<int>(request.tokens.size()),
          .prefix_len = match.len(options_.page_tokens),
          .prefix_pages = static_cast<int>(match.pages.size()),
          .remaining_new_tokens = request.remaining_new_tokens(),
          .ignore_eos = request.sampling.ignore_eos,
          .spare_rows = spare,
          .may_be_cut = std::ssize(lists_.chunked) < options_.max_chunked_requests,
          .window_room = window_room(nullptr),
          .window_need = memory_.windows.max_pages(request, static_cast<int>(match.pages.size()))};
}

// Returns true if there are slots for the states of one more request. Each running request has two.
// More are held only for states that steps in flight compute, so these are committed first.
bool PrefillPass::has_state_room() {
  if (memory_.states.has_room()) return true;
  HOCKET_CHECK(step_.rows_in_flight);
  outcome_.must_commit_first = true;
  return false;
}

// Finds the cached prefix of a request that would begin. If a peer with larger pages awaits it, and
// the tree has lost a window page that the peer needs behind the last border there, the prefix ends
// before that page, so that it is computed again.
PrefixMatch PrefillPass::find_prefix(const Request& request) {
  const auto reusable = request.reusable_tokens();
  PrefixMatch found = memory_.cache.match(request.cache_namespace, reusable);
  if (request.border_tokens == 0 || !memory_.windows.enabled() || options_.hooks == nullptr)
    return found;
  const auto border = static_cast<int>(reusable.size());
  const auto page_tokens = static_cast<size_t>(options_.page_tokens);
  const auto whole = reusable.first(found.pages.size() * page_tokens);
  const int dropped = memory_.cache.first_dropped_window(
      request.cache_namespace, whole, memory_.windows.first_awaited_page(request, border));
  if (dropped >= std::ssize(found.pages) || !options_.hooks->needs_windows(request, border))
    return found;
  const int longest_len = found.longest_len;
  found = PrefixMatch();
  found = memory_.cache.match(request.cache_namespace,
                              whole.first(static_cast<size_t>(dropped) * page_tokens));
  found.longest_len = longest_len;
  return found;
}

// Returns true if a request that would fit is to be held once more.
bool PrefillPass::holds_again(const Request& request, const PrefillCandidate& wanted) const {
  return options_.hooks != nullptr && adder_.shortfall(wanted, memory_.available_tokens()) <= 0 &&
         options_.hooks->waits_again(request);
}

// Tries the head of the queue. The first that does not fit ends the pass, so that a big request is
// not overtaken.
AddResult PrefillPass::admit() {
  const Request& head = *lists_.waiting.head();
  if (!has_state_room()) return AddResult::no_tokens;
  PrefixMatch match = find_prefix(head);
  // The match pins its state, which may have been the one to give way.
  if (!has_state_room()) return AddResult::no_tokens;
  pace(match.len(options_.page_tokens));
  const int spare = rows_of_others(num_parts(0));
  const PrefillCandidate wanted = candidate(head, match, spare);
  if (holds_again(head, wanted)) {
    match = PrefixMatch();
    lists_.waiting.hold_head();
    return AddResult::added;  // the next one is tried
  }
  Admission admission = adder_.add(wanted, memory_.available_tokens());
  if (admission.result == AddResult::no_tokens && adder_.alone()) {
    // A request that is alone always fits, unless the page to copy from is pinned: drop that page.
    const auto whole_pages = match.pages.size() * static_cast<size_t>(options_.page_tokens);
    match = PrefixMatch();
    match = memory_.cache.match(head.cache_namespace, head.reusable_tokens().first(whole_pages));
    admission = adder_.add(candidate(head, match, spare), memory_.available_tokens());
    HOCKET_CHECK(admission.result == AddResult::added);
  }
  if (admission.result == AddResult::added) start(std::move(match), admission.len);
  return admission.result;
}

// Admits the head. Precondition: reserve_lists() returned true.
void PrefillPass::start(PrefixMatch match, int len) {
  std::unique_ptr<Request> owned = lists_.waiting.take_head();
  Request& request = *owned;
  const int found = match.len(options_.page_tokens);
  lists_.waiting.admitted(request, static_cast<int>(request.tokens.size()) - found);
  memory_.begin(request, match);
  step_.batch.cached_tokens += found;
  request.state = Request::State::prefilling;
  if (request.num_retractions == 0) note_first_start(request, match.longest_len);
  const Slice& slice = step_.batch.add_rows(request, len);
  memory_.take_pages(slice);
  if (match.partial_len > 0)
    step_.batch.copies.push_back(
        {match.partial_source, request.pages[match.pages.size()], match.partial_len,
         match.window_partial_source,
         memory_.windows.enabled() ? request.window.pages[match.pages.size()] : kNoPage});
  lists_.add_active(std::move(owned), slice.is_sampled);
}

// A request that continues an answer may also find tokens of the answer.
void PrefillPass::note_first_start(Request& request, int longest_match) {
  request.times.first_scheduled = step_.now;
  request.cached_len = std::min(request.computed_len, request.prompt_len);
  request.recomputed_len =
      std::max(0, std::min(longest_match, request.prompt_len) - request.computed_len);
  step_.counters.recomputed_tokens_total += static_cast<uint64_t>(request.recomputed_len);
  step_.counters.prompt_tokens_total += static_cast<uint64_t>(request.prompt_len);
  step_.counters.cached_tokens_total += static_cast<uint64_t>(request.cached_len);
}

// Sends running requests back to the queue until the head fits. Victims are those whose priority is
// smaller by more than the threshold: the smallest priority first, of equal ones the newest. If all
// together would not be enough, none is sent back. A victim frees what was reserved for it and the
// pages of its own. Returns true if the head may be tried again.
bool PrefillPass::preempt_for_head() {
  if (!may_preempt()) return false;
  const PriorityOptions& rules = options_.priorities;
  const Request& head = *lists_.waiting.head();
  const auto candidates = lists_.running.requests().first(static_cast<size_t>(num_decodable_));
  std::vector<const Request*> victims;
  for (const auto& request : candidates)
    if (request->finish == FinishReason::none &&
        int64_t{head.priority} - request->priority > rules.preemption_threshold)
      victims.push_back(request.get());
  if (victims.empty()) return false;
  std::ranges::sort(victims, {}, [](const Request* r) {
    return std::tuple(r->priority, -r->times.arrived.time_since_epoch(), -int64_t(value(r->id)));
  });

  const auto reserve = [&](const Request& r) {
    return step_.ratio * std::min(r.remaining_new_tokens(), kMaxReservedNewTokens);
  };
  double need = 0;
  int window_need = 0;
  {
    const PrefixMatch match = find_prefix(head);
    const PrefillCandidate wanted = candidate(head, match, 0);
    need = adder_.shortfall(wanted, memory_.available_tokens());
    window_need = wanted.window_need - wanted.window_room;
  }
  if (need <= 0 && window_need <= 0 && lists_.has_slot()) return false;
  size_t num_victims = 0;
  const auto lacks = [&] { return need > 0 || window_need > 0; };
  while (num_victims < victims.size() && (num_victims == 0 || lacks())) {
    const Request& victim = *victims[num_victims++];
    need -= reserve(victim) + victim.num_own_pages() * options_.page_tokens;
    window_need -= memory_.windows.num_freed_by_retraction(victim);
  }
  if (lacks()) return false;
  if (step_.rows_in_flight) {
    outcome_.must_commit_first = true;
    return false;
  }

  for (const Request* victim : std::span(victims).first(num_victims)) {
    adder_.free_reserve(reserve(*victim));
    const auto found = std::ranges::find(candidates, victim, &std::unique_ptr<Request>::get);
    if (found - candidates.begin() < lists_.running.num_ready) --lists_.running.num_ready;
    --num_decodable_;
    log::info("request {} (priority {}) was preempted by request {} (priority {})",
              value(victim->id), victim->priority, value(head.id), head.priority);
    preempted_.push_back(victim);
    lists_.retract(lists_.running.take(*victim), step_.now);
    ++step_.counters.num_preempted_total;
  }
  return true;
}

}  // namespace hocket
