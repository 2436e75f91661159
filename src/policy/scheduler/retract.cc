// Takes pages back from prompts in chunks and from running requests: when decode rows need them, or
// when steps failed.
#include "policy/scheduler/retract.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "policy/scheduler/scheduler_state.h"

namespace hocket {

const Request& retraction_victim(std::span<const std::unique_ptr<Request>> running) {
  HOCKET_CHECK(running.size() >= 2);
  const auto loss = [](const Request& r) { return std::tuple(r.generated(), -r.prompt_len); };
  auto victim = running.begin();
  for (auto it = running.begin() + 1; it != running.end(); ++it)
    if (loss(**it) <= loss(**victim)) victim = it;
  return **victim;
}

// Frees memory for the decode rows, in this order: cached pages, prompts in chunks (which have
// generated nothing yet; the newest first), running requests. Returns how many requests were sent
// back or ended.
int Scheduler::State::retract_until_decode_fits() {
  const int pages_before = num_available_pages();
  int num_retracted = 0;
  while (running.num_pages_needed() > num_takeable_pages()) {
    if (!chunked.empty()) {
      retract_for_memory(take_newest_chunked());
    } else if (running.size() > 1) {
      retract_for_memory(running.take(retraction_victim(running.requests())));
    } else {
      // add() refuses requests that can never fit, so the pages must have gone elsewhere. One
      // answer with an error is better than a server that stops.
      std::unique_ptr<Request> last = running.take(*running.requests().front());
      fail_request(*last,
                   error(ErrorCode::out_of_memory,
                         "the KV cache of {} pages is full at {} tokens of this request, with all "
                         "others retracted",
                         pages.num_pages(), last->tokens.size())
                       .with_fix("a smaller max_tokens, or more memory for the KV cache"));
      close(std::move(last));
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
  pause.begin();  // nothing is admitted before something changed
  log::warning(
      "KV cache pool is full. Retract requests. #retracted_reqs: {}, #new_tokens_gained: {}, "
      "#new_token_ratio: {:.4f} -> {:.4f}",
      num_retracted, (num_available_pages() - pages_before) * page_tokens(), ratio_before,
      ratio.now());
  return num_retracted;
}

std::unique_ptr<Request> Scheduler::State::take_newest_chunked() {
  std::unique_ptr<Request> newest = std::move(chunked.back());
  chunked.pop_back();
  return newest;
}

void Scheduler::State::retract_for_memory(std::unique_ptr<Request> request) {
  ++counters.num_retracted_total;
  counters.retracted_input_total += static_cast<uint64_t>(request->prompt_len);
  counters.retracted_output_total += static_cast<uint64_t>(request->generated());
  retract(std::move(request));
}

// Drops the request's keys and values but keeps its generated tokens; an extend computes them
// again.
void Scheduler::State::retract(std::unique_ptr<Request> request) {
  waiting.left(*request);
  free_pages(*request);
  request->state = Request::State::waiting;
  ++request->num_retractions;
  waiting.push_retracted(std::move(request), now);
}

int Scheduler::undo_steps(const Error& why, TimePoint now) {
  state_->now = now;
  return state_->undo_steps(why);
}

// Puts the newest back first, so that the oldest is the next to be admitted.
int Scheduler::State::undo_steps(const Error& why) {
  while (batches.size() > 0) {
    for (const Slice& slice : batches.take_newest().slices) {
      Request& request = *slice.request;
      --request.num_batches;
      if (slice.is_sampled) --request.num_pending;
      request.future = -1;
      request.computed_len = slice.begin;
    }
  }
  running.num_ready = 0;
  must_settle = false;
  pause.end();
  remove_ended();
  int num_put_back = 0;
  while (num_active() > 0) num_put_back += put_back(take_newest(), why) ? 1 : 0;
  ++progress.cache_generation;
  return num_put_back;
}

// Takes the request that was admitted last. Neither list has all in order of admission, because
// shorter prompts pass those in chunks. Precondition: num_active() > 0.
std::unique_ptr<Request> Scheduler::State::take_newest() {
  const auto order = [](const auto& request) { return request->admitted_as; };
  const auto requests = running.requests();
  const auto newest = std::ranges::max_element(requests, {}, order);
  const bool in_chunks =
      newest == requests.end() || (!chunked.empty() && order(chunked.back()) > order(*newest));
  return in_chunks ? take_newest_chunked() : running.take(**newest);
}

// Returns false if the request has been put back too often, and ends.
bool Scheduler::State::put_back(std::unique_ptr<Request> request, const Error& why) {
  const int len = static_cast<int>(request->tokens.size());
  if (std::exchange(request->undone_at, len) != len) request->num_undone = 0;
  if (++request->num_undone > kMaxUndone) {
    fail_request(*request, why);
    close(std::move(request));
    return false;
  }
  cache_pages(*request, request->computed_len);
  retract(std::move(request));
  return true;
}

}  // namespace hocket
