// Chooses the rows of the next step:
//
//   prefill_first:   prefill rows, or if there are none, decode rows; in turn while window pages
//                    are so few that a prompt takes many short steps
//   mixed, latency:  pages for decode rows, prefill rows beside them, then the decode rows
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "policy/scheduler/scheduler_state.h"

namespace hocket {

void Scheduler::State::schedule() {
  HOCKET_CHECK(!batches.has_drafts());
  batches.begin();
  running.num_ready = 0;
  choose();
  if (options.hooks != nullptr)
    batch().idle_step = options.hooks->any_rank_computes(batch()) && batch().empty();
  if (!batch().empty()) launch();
}

void Scheduler::State::choose() {
  apply_timeouts();
  ask_held();
  if (!batches.has_rows() && std::exchange(must_settle, false)) pause.end();
  if (must_settle) return;
  if (running.empty())
    pause.end();
  else
    pause.count_step();
  if (num_active() == 0 && waiting.empty()) {
    if (leaving.empty()) ratio.reset();
    return;
  }

  const bool mixes = makes_mixed_batches();
  const bool answers_first = std::exchange(short_of_windows, false) && !mixes;
  if (mixes || answers_first) running.num_ready = prepare_decode();
  if (!must_settle && (!answers_first || running.num_ready == 0)) prefill();
  if (!mixes && !answers_first && !must_settle && batch().empty())
    running.num_ready = prepare_decode();
  if (batch().empty() && running.num_ready == 0 && !batches.has_rows()) {
    pause.end();  // the last running request had to be ended
    prefill();
  }
  add_decode_rows();
}

// Predicts whether admission pauses after the next step: a request that surely ends clears it, and
// so do enough steps.
NextStepForecast Scheduler::State::forecast_next_step() const {
  NextStepForecast next{.continues = !chunked.empty()};
  for (const auto& request : running.requests()) next.num_decoding += request->decodes() ? 1 : 0;
  const bool tries =
      !pause.outlasts_a_step() || next.num_decoding < running.size() || running.empty();
  next.begins = !waiting.empty() && tries;
  return next;
}

void Scheduler::State::ask_held() {
  for (int i = 0; i < waiting.num_held();) {
    Result<bool> ready = options.hooks->ready(*waiting.held()[static_cast<size_t>(i)]);
    if (ready && !*ready) {
      ++i;
      continue;
    }
    pause.end();
    std::unique_ptr<Request> request = waiting.take_held(i);
    if (ready) {
      const TimePoint queued = request->times.queued;
      waiting.push(std::move(request), queued, progress.rows_total);
    } else {
      fail_request(*request, std::move(ready.error()));
      close(std::move(request));
    }
  }
}

// Adds the rows of answers. If not all rows of forced tokens have room, the others come in later
// steps, and the request samples only after the last of them. Drafts get the room that is left.
void Scheduler::State::add_decode_rows() {
  const auto requests = running.ready();
  const size_t num_prefill = batch().slices.size();
  const int num_prefill_rows = batch().num_rows;
  list_answers();
  int spare = options.max_answer_rows - num_answer_rows();
  auto offer = offers.begin();
  for (const auto& request : requests) {
    if (!request->decodes()) continue;
    const auto [_, rows, most, wanted, are_predicted] = *offer++;
    HOCKET_CHECK(std::ssize(wanted) <= most);
    const int count = std::min({static_cast<int>(wanted.size()), spare, max_drafts(*request)});
    if (rows == 1 && count == 0) continue;
    add_rows(*request, rows);
    add_drafts(batch().slices.back(), wanted.first(static_cast<size_t>(count)));
    batch().slices.back().are_predicted = are_predicted;
    spare -= batch().slices.back().num_drafts;
  }
  batch().num_multirow_slices = static_cast<int>(batch().slices.size() - num_prefill);
  batch().num_multirow_rows = batch().num_rows - num_prefill_rows;
  size_t next = num_prefill;  // next slice with several rows
  for (const auto& request : requests) {
    if (next < num_prefill + static_cast<size_t>(batch().num_multirow_slices) &&
        batch().slices[next].request == request.get())
      ++next;
    else if (request->decodes())
      add_rows(*request, 1);
  }
  if (batch().empty()) return;
  batch().num_decode_rows = static_cast<int>(batch().slices.size() - next);
  batch().mode = num_prefill == 0            ? ForwardMode::decode
                 : batch().num_answers() > 0 ? ForwardMode::mixed
                                             : ForwardMode::extend;
}

// Lists the answers with rows in this step, and asks for drafts.
void Scheduler::State::list_answers() {
  offers.clear();
  for (const auto& request : running.ready())
    if (request->decodes()) offers.push_back({.request = request.get(), .rows = 1});
  if (offers.empty()) return;
  const int num_rows = num_answer_rows();
  int spare = num_rows - static_cast<int>(offers.size());
  for (AnswerDrafts& offer : offers) {
    const int wanted = offer.request->uncomputed(), more = std::min(spare, wanted - 1);
    offer.rows += more;
    spare -= more;
    if (offer.rows == wanted) offer.most = max_drafts(*offer.request);
  }
  if (options.hooks != nullptr)
    options.hooks->offer_drafts(offers, options.max_answer_rows - num_rows);
}

// Returns how many drafts the request may have:
// - none beside a step in flight;
// - so few that, if all hold, the token after them is at most its last one;
// - so few that every answer finds a page for its next row, so drafts cost no request its pages;
// - so few that no state is made of drafts.
int Scheduler::State::max_drafts(const Request& request) const {
  if (options.hooks == nullptr || batches.size() > 0) return 0;
  const int end = request.len();
  const int spare_pages = num_takeable_pages() - static_cast<int>(offers.size());
  const int64_t num_pages = std::ssize(request.pages) + std::max(0, spare_pages);
  const int64_t in_pages = std::min<int64_t>(num_pages * page_tokens() - end, kMaxDrafts);
  return std::max(0,
                  std::min({static_cast<int>(in_pages), request.remaining_new_tokens() - 1,
                            states.rows_before_border(end), window_rows() - request.uncomputed()}));
}

void Scheduler::State::add_drafts(Slice& slice, std::span<const TokenId> drafts) {
  std::ranges::copy(drafts, slice.drafts.begin());
  slice.num_drafts = static_cast<int>(drafts.size());
  slice.len += slice.num_drafts;
  batch().num_rows += slice.num_drafts;
  batch().num_drafts += slice.num_drafts;
  take_pages_to(*slice.request, slice.begin + slice.len);
}

// Counts the batch's rows as computed from here on, and the tokens that they sample as present;
// drafts count when they are committed.
void Scheduler::State::launch() {
  int num_samples = 0, num_done = 0;
  const auto num_prompts = std::ssize(batch().slices) - batch().num_answers();
  for (Slice& slice : batch().slices) {
    Request& request = *slice.request;
    states.assign_slots(slice);
    request.computed_len = slice.begin + slice.len - slice.num_drafts;
    ++request.num_batches;
    if (!slice.is_sampled) continue;
    ++request.num_pending;
    request.future = num_samples;
    num_samples += slice.num_samples();
    num_done += &slice - batch().slices.data() < num_prompts ? 1 : 0;
  }
  batch().num_running = running.size() - num_done;
  batch().num_waiting = waiting.size();
  batch().pending_tokens = waiting.num_tokens();
  for (const auto& request : chunked) batch().pending_tokens += request->uncomputed();
  batch().overlapped = batches.size() > 0;
  batches.launch();
}

void Scheduler::State::add_rows(Request& request, int len) {
  batch().slices.push_back({.request = &request,
                            .begin = request.computed_len,
                            .future = request.num_pending > 0 ? request.future : -1});
  lengthen(batch().slices.back(), len);
}

void Scheduler::State::lengthen(Slice& slice, int num_rows) {
  Request& request = *slice.request;
  slice.len += num_rows;
  batch().num_rows += num_rows;
  const int end = slice.begin + slice.len;
  take_pages_to(request, end);
  slice.is_sampled = end == request.len();
  const int from = std::max(request.logprobs_from(), slice.begin);
  const bool reports = request.logprobs_from() >= 0 && from < std::min(end, request.prompt_len - 1);
  slice.logprobs_from = reports ? from : -1;
}

// Takes the pages that the request lacks for its first `end` tokens.
void Scheduler::State::take_pages_to(Request& request, int end) {
  const int missing = pages_for(end, page_tokens()) - static_cast<int>(request.pages.size());
  if (missing > 0) take_pages(request, missing);
}

void Scheduler::State::take_pages(Request& request, int num_pages) {
  if (pages.num_free() < num_pages) {
    cache.evict(num_pages - pages.num_free());
    ++progress.cache_generation;
  }
  const size_t held = request.pages.size();
  request.pages.resize(held + static_cast<size_t>(num_pages), kNoPage);
  HOCKET_CHECK(pages.take(std::span(request.pages).subspan(held)));
  take_window_pages(request, num_pages);
}

// Takes the pages for the next rows of every running request that decodes. Returns how many of
// `running` were looked at: all, or none if nothing decodes or a request must lose its pages first.
int Scheduler::State::prepare_decode() {
  const auto requests = running.requests();
  if (std::ranges::none_of(requests, [](const auto& request) { return request->decodes(); }))
    return 0;
  if (batches.has_rows() && running.num_pages_needed() > num_takeable_pages()) {
    must_settle = true;
    return 0;
  }
  if (retract_until_decode_fits() == 0) ratio.decay();
  for (const auto& request : running.requests())
    if (const int missing = running.num_pages_needed(*request); missing > 0)
      take_pages(*request, missing);
  return running.size();
}

// Returns one row for each answer, plus rows of forced tokens while there is room.
int Scheduler::State::num_answer_rows() const {
  int num_answers = 0, rows = 0;
  for (const auto& request : running.ready()) {
    if (!request->decodes()) continue;
    ++num_answers;
    rows += request->uncomputed();
  }
  return std::max(num_answers, std::min(rows, options.max_answer_rows));
}

}  // namespace hocket
