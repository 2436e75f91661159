// Which rows run next. Prefill goes first and decode waits a step, unless chunks may be mixed with
// decode rows.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "policy/scheduler/scheduler_state.h"

namespace hocket {
namespace {

// The reserve shrinks with the ratio, so a head that did not fit may fit some steps later although
// nobody left.
constexpr int kStepsBetweenTries = 16;

}  // namespace

void Scheduler::State::schedule() {
  HOCKET_CHECK(!in_flight);
  batch.mode = ForwardMode::idle;
  batch.slices.clear();
  batch.copies.clear();
  batch.num_rows = 0;
  num_decoding = 0;
  apply_timeouts();
  if (running.empty() || ++steps_full >= kStepsBetweenTries) full = false;
  if (num_active() == 0 && waiting.empty()) return ratio.reset();

  if (options.mixed_chunks) num_decoding = prepare_decode();
  prefill();
  if (!options.mixed_chunks && batch.empty()) num_decoding = prepare_decode();
  if (batch.empty() && num_decoding == 0) {  // the last running request had to be given up
    full = false;
    prefill();
  }

  batch.mode = batch.empty()      ? ForwardMode::decode
               : num_decoding > 0 ? ForwardMode::mixed
                                  : ForwardMode::extend;
  for (const auto& request : running.requests().first(static_cast<size_t>(num_decoding)))
    add_rows(*request, 1);
  in_flight = !batch.empty();
  if (!in_flight) batch.mode = ForwardMode::idle;
}

// Pre: pages of the decode rows of this pass, the first of `running`, are taken already.
void Scheduler::State::prefill() {
  if (!chunked && (full || waiting.empty())) return;
  num_decodable = running.size();
  preempted.clear();
  PrefillBudget budget{.page_tokens = page_tokens(),
                       .chunk_tokens = options.chunk_tokens,
                       .max_prefill_tokens = options.max_prefill_tokens,
                       .num_decode_rows = num_decoding,
                       .reserved_tokens = running.reserved_tokens(ratio.now()),
                       .nothing_running = running.empty(),
                       .max_requests = options.prefill_max_requests,
                       .play_to_the_end = !options.prefix_cache};
  if (budget.play_to_the_end) budget.growths = running.growths(ratio.now());
  PrefillAdder adder(std::move(budget));
  if (!full)
    waiting.begin_pass(cache, {.cache_generation = cache_generation, .rows_total = rows_total});
  if (chunked) {
    continue_chunked(adder);
    if (chunked && batch.empty()) return;  // it waits for memory: so does everybody
  }
  if (full || waiting.empty()) return;

  AddResult verdict = adder.verdict(available_tokens());
  while (verdict == AddResult::added && !waiting.empty()) {
    const Request* head = waiting.head();
    if (std::ranges::find(preempted, head) != preempted.end()) return;
    const bool has_slot = num_active() < options.max_running_requests;
    verdict = has_slot ? admit(adder) : AddResult::no_tokens;
    if (verdict == AddResult::no_tokens && preempt_for_head(adder)) verdict = admit(adder);
    if (verdict == AddResult::added) verdict = adder.verdict(available_tokens());
  }
  if (verdict == AddResult::no_tokens) {
    full = true;
    steps_full = 0;
  }
}

void Scheduler::State::continue_chunked(PrefillAdder& adder) {
  // Shorter prompts may have up to half of the pass.
  const int spare = waiting.num_short_rows(chunked->uncomputed(), adder.limit() / 2, page_tokens());
  const Admission admission =
      adder.continue_chunked({.total_len = static_cast<int>(chunked->tokens.size()),
                              .prefix_len = chunked->computed_len,
                              .prefix_pages = static_cast<int>(chunked->pages.size()),
                              .new_tokens_left = chunked->new_tokens_left(),
                              .spare_rows = spare},
                             available_tokens());
  if (admission.result != AddResult::added) {
    HOCKET_CHECK(!running.empty());  // else nobody would ever free a page
    return;
  }
  add_rows(*chunked, admission.len);
  if (batch.slices.back().samples) running.add(std::move(chunked));
}

PrefillCandidate Scheduler::State::candidate(const Request& request,
                                             const PrefixMatch& match) const {
  return {.total_len = static_cast<int>(request.tokens.size()),
          .prefix_len = match.len(page_tokens()),
          .prefix_pages = static_cast<int>(match.pages.size()),
          .new_tokens_left = request.new_tokens_left(),
          .ignore_eos = request.sampling.ignore_eos,
          .may_be_cut = chunked == nullptr};
}

// Tries the head of the queue; the first that does not fit ends the pass, so that nobody overtakes
// a big request.
AddResult Scheduler::State::admit(PrefillAdder& adder) {
  const Request& head = *waiting.head();
  const auto reusable = head.reusable_tokens();
  PrefixMatch match = cache.match(head.cache_namespace, reusable);
  Admission admission = adder.add(candidate(head, match), available_tokens());
  if (admission.result == AddResult::no_tokens && adder.alone()) {
    // Alone it fits for sure, but for the page that the copy would be made from.
    const auto whole_pages = match.pages.size() * static_cast<size_t>(page_tokens());
    match = PrefixMatch();
    match = cache.match(head.cache_namespace, reusable.first(whole_pages));
    admission = adder.add(candidate(head, match), available_tokens());
    HOCKET_CHECK(admission.result == AddResult::added);
  }
  if (admission.result == AddResult::added) start(std::move(match), admission.len);
  return admission.result;
}

void Scheduler::State::start(PrefixMatch match, int len) {
  std::unique_ptr<Request> owned = waiting.take_head();
  Request& request = *owned;
  waiting.admitted(request, static_cast<int>(request.tokens.size()) - match.len(page_tokens()));
  const int most_tokens = request.prompt_len + request.sampling.max_new_tokens;
  request.tokens.reserve(static_cast<size_t>(most_tokens));
  request.pages.reserve(static_cast<size_t>(pages_for(most_tokens, page_tokens())));
  request.pages.assign(match.pages.begin(), match.pages.end());
  request.leased_pages = static_cast<int>(match.pages.size());
  request.computed_len = match.len(page_tokens());
  request.lease = std::move(match.lease);
  request.state = Request::State::prefilling;
  if (request.num_retractions == 0) {
    request.times.first_scheduled = now;
    request.cached_len = request.computed_len;
    prompt_tokens_total += static_cast<uint64_t>(request.prompt_len);
    cached_tokens_total += static_cast<uint64_t>(request.cached_len);
  }
  add_rows(request, len);
  if (match.partial_len > 0)
    batch.copies.push_back(
        {match.partial_source, request.pages[match.pages.size()], match.partial_len});
  if (batch.slices.back().samples) {
    running.add(std::move(owned));
  } else {
    chunked = std::move(owned);
  }
}

void Scheduler::State::add_rows(Request& request, int len) {
  const int begin = request.computed_len, end = begin + len;
  const int missing = pages_for(end, page_tokens()) - static_cast<int>(request.pages.size());
  if (missing > 0) take_pages(request, missing);
  const int from = std::max(request.logprobs_from(), begin);
  const bool reports = request.logprobs_from() >= 0 && from < std::min(end, request.prompt_len - 1);
  batch.slices.push_back({.request = &request,
                          .begin = begin,
                          .len = len,
                          .samples = end == static_cast<int>(request.tokens.size()),
                          .logprobs_from = reports ? from : -1});
  batch.num_rows += len;
}

void Scheduler::State::take_pages(Request& request, int num_pages) {
  if (pages.num_free() < num_pages) {
    cache.evict(num_pages - pages.num_free());
    ++cache_generation;
  }
  const size_t held = request.pages.size();
  request.pages.resize(held + static_cast<size_t>(num_pages), kNoPage);
  HOCKET_CHECK(pages.take(std::span(request.pages).subspan(held)));
}

// Takes the pages for one more row of every running request; returns how many rows that makes.
int Scheduler::State::prepare_decode() {
  if (running.empty()) return 0;
  if (retract_until_decode_fits() == 0) ratio.decay();
  for (const auto& request : running.requests())
    if (running.needs_page(*request)) take_pages(*request, 1);
  return running.size();
}

// The tree gives way first, then the unfinished chunk, which has generated nothing yet, then
// running requests.
int Scheduler::State::retract_until_decode_fits() {
  const int pages_before = num_available_pages();
  int num_retracted = 0;
  while (running.num_pages_needed() > num_available_pages()) {
    if (chunked) {
      retract(std::move(chunked));
    } else if (running.size() > 1) {
      retract(running.take_victim());
    } else {
      // add() refuses what can never fit, so this means that pages went elsewhere: one answer with
      // an error is better than a dead server.
      std::unique_ptr<Request> last = running.take(*running.requests().front());
      fail_request(*last,
                   error(ErrorCode::out_of_memory,
                         "the KV cache of {} pages is full at {} tokens of this request, with all "
                         "others retracted",
                         pages.num_pages(), last->tokens.size())
                       .with_fix("a smaller max_tokens, or more memory for the KV cache"));
      retire(std::move(last));
      break;
    }
    ++num_retracted;
  }
  if (num_retracted == 0) return 0;

  double generated = 0, most = 0;
  for (const auto& request : running.requests()) {
    generated += request->generated();
    most += request->sampling.max_new_tokens;
  }
  const double ratio_before = ratio.now();
  ratio.raise(generated, most, running.size());
  full = true;  // nobody comes in before something changed
  steps_full = 0;
  num_retracted_total += static_cast<uint64_t>(num_retracted);
  log::warning(
      "KV cache pool is full. Retract requests. #retracted_reqs: {}, #new_tokens_gained: {}, "
      "#new_token_ratio: {:.4f} -> {:.4f}",
      num_retracted, (num_available_pages() - pages_before) * page_tokens(), ratio_before,
      ratio.now());
  return num_retracted;
}

// Its keys and values go, its generated tokens stay: they are computed again as an extend.
void Scheduler::State::retract(std::unique_ptr<Request> request) {
  waiting.left(*request);
  release(*request);
  request->state = Request::State::waiting;
  ++request->num_retractions;
  waiting.push_retracted(std::move(request), now);
}

}  // namespace hocket
