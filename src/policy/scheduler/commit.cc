// Takes the results of a finished step: lengths, tokens, the tree, and requests that end.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "policy/scheduler/scheduler_state.h"

namespace hocket {
namespace {

bool contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

void Scheduler::State::commit(std::span<const SampledToken> sampled) {
  Batch& done = batches.take_oldest();
  progress.rows_total += static_cast<uint64_t>(done.num_rows);
  size_t num_used = 0;
  for (Slice& slice : done.slices) {
    Request& request = *slice.request;
    int end = slice.begin + slice.len - slice.num_drafts;
    --request.num_batches;
    const auto num_samples = static_cast<size_t>(slice.num_samples());
    HOCKET_CHECK(num_used + num_samples <= sampled.size());
    const auto own = sampled.subspan(num_used, num_samples);
    num_used += num_samples;
    if (slice.is_sampled) --request.num_pending;
    if (slice.logprobs_from >= 0) request.logprobs_done = std::min(end, request.prompt_len - 1);
    // The request ended earlier, or was aborted in flight.
    if (request.finish != FinishReason::none) continue;

    const bool was_prefilling = request.state == Request::State::prefilling;
    take_samples(slice, own);
    if (request.finish == FinishReason::error) continue;
    end += slice.num_held();
    if (was_prefilling) cache_pages(request, end);
    states.commit(request, end);
    slide_window(request, end);
  }
  HOCKET_CHECK(num_used == sampled.size());

  const size_t num_before = finished.size();
  remove_ended();
  if (finished.size() > num_before) pause.end();
}

void Scheduler::State::remove_ended() {
  std::erase_if(chunked, [this](std::unique_ptr<Request>& request) {
    if (request->finish == FinishReason::none) return false;
    finish(std::move(request));
    return true;
  });
  running.take_finished([this](std::unique_ptr<Request> request) { finish(std::move(request)); });
  std::erase_if(leaving, [this](std::unique_ptr<Request>& request) {
    if (request->num_batches > 0) return false;
    close(std::move(request));
    return true;
  });
}

void Scheduler::State::fail_request(Request& request, Error why) const {
  request.finish = FinishReason::error;
  request.error = std::move(why);
}

// Tests for the end in this order: no usable token, length, the grammar's end, stop token.
void Scheduler::State::accept(Request& request, const SampledToken& sampled) {
  if (sampled.no_memory)
    return fail_request(
        request,
        error(ErrorCode::out_of_memory,
              "after {} tokens of the answer there was no memory for its log-probabilities",
              request.generated())
            .with_fix("try again later, or without log-probabilities"));
  if (sampled.failed && sampled.grammar == GrammarVerdict::failed)
    return fail_request(
        request,
        error(ErrorCode::invalid_request,
              "after {} tokens of the answer nothing is left that the grammar allows, or it is too "
              "ambiguous to be followed any further",
              request.generated())
            .with_fix("a simpler grammar")
            .with_param(request.sampling.grammar ? request.sampling.grammar->field : ""));
  if (sampled.failed)
    return fail_request(request, error(ErrorCode::bad_logits,
                                       "the logits after {} tokens are not finite, or its bias and "
                                       "penalties make them so, or leave no token",
                                       request.tokens.size()));
  const int id = value(sampled.token);
  if (id < 0 || (options.vocab_size > 0 && id >= options.vocab_size))
    return fail_request(request, error(ErrorCode::bad_logits,
                                       "token {} after {} tokens is outside the vocabulary of {}",
                                       id, request.tokens.size(), options.vocab_size));
  if (request.times.prefill_done == TimePoint{}) request.times.prefill_done = now;
  request.state = Request::State::running;
  request.tokens.push_back(sampled.token);
  ++counters.generated_tokens_total;
  if (request.group != nullptr) request.group->served += kNewTokenWeight;

  const SamplingParams& sampling = request.sampling;
  const bool is_eos = contains(options.eos_ids, sampled.token);
  const bool ends = contains(sampling.stop_ids, sampled.token) || (!sampling.ignore_eos && is_eos);
  if (request.generated() >= sampling.max_new_tokens) {
    request.finish = FinishReason::length;
  } else if (sampled.grammar == GrammarVerdict::ended) {
    request.finish = FinishReason::stop;
    if (ends || is_eos) request.matched_stop = sampled.token;
  } else if (ends && request.generated() >= sampling.min_new_tokens) {
    request.finish = FinishReason::stop;
    request.matched_stop = sampled.token;
  }
}

// Appends what was sampled, row by row, up to the end: the row of a draft counts if the token
// before it is the draft. Rows of other drafts are computed anew by the next step.
void Scheduler::State::take_samples(Slice& slice, std::span<const SampledToken> sampled) {
  Request& request = *slice.request;
  for (const SampledToken& token : sampled) {
    slice.num_forced = accept_forced(request, token);
    if (request.finish == FinishReason::error) break;
    const auto draft = static_cast<size_t>(slice.num_taken++);
    const bool holds = std::cmp_less(draft, slice.num_drafts) && token.token == slice.drafts[draft];
    if (!holds || request.finish != FinishReason::none) break;
    HOCKET_CHECK(token.forced.empty());
  }
  request.computed_len += slice.num_held();
  if (slice.num_drafts == 0) return;
  request.drafts.add({.num_verified = 1,
                      .num_drafts = slice.num_drafts,
                      .num_held = slice.num_held(),
                      .num_predicted = slice.are_predicted ? slice.num_drafts : 0,
                      .num_predicted_held = slice.are_predicted ? slice.num_held() : 0});
  ++counters.num_verified_total;
  for (size_t i = 0; std::cmp_less(i, slice.num_drafts); ++i) {
    ++counters.drafted_total[i];
    if (std::cmp_less(i, slice.num_held())) ++counters.held_total[i];
  }
}

// Appends the sampled token and those that it forced, up to the end. Returns how many forced ones.
int Scheduler::State::accept_forced(Request& request, const SampledToken& sampled) {
  const std::span<const TokenId> forced = sampled.forced;
  if (forced.empty()) return accept(request, sampled), 0;
  HOCKET_CHECK((!sampled.failed && request.num_pending == 0));
  accept(request, {.token = sampled.token});
  int taken = 0;
  while (taken < std::ssize(forced) && request.finish == FinishReason::none) {
    const TokenId token = forced[static_cast<size_t>(taken++)];
    const bool is_last = taken == std::ssize(forced);
    accept(request,
           {.token = token, .grammar = is_last ? sampled.grammar : GrammarVerdict::goes_on});
  }
  counters.forced_tokens_total += static_cast<uint64_t>(taken);
  return taken;
}

// Hands the whole pages of the first `num_tokens` to the tree, so that running and coming requests
// can share them. Afterwards:
//   pages   | the tree's: leased | the partial last page, and rows in flight: own |
void Scheduler::State::cache_pages(Request& request, int num_tokens) {
  num_tokens = std::min(num_tokens, static_cast<int>(request.num_shareable()));
  const auto num_whole = static_cast<size_t>(num_tokens / page_tokens());
  const auto num_shared = num_whole * static_cast<size_t>(page_tokens());
  request.lease =
      cache.insert(request.cache_namespace, std::span(request.tokens).first(num_shared),
                   std::span(request.pages).first(num_whole), request.priority,
                   std::span(request.window.pages).first(has_windows() ? num_whole : 0));
  request.leased_pages = request.lease.len() / page_tokens();
  lease_window(request);
  ++progress.cache_generation;
  if (options.hooks != nullptr) options.hooks->on_pages_cached(request);
}

void Scheduler::State::free_pages(Request& request) {
  states.free(request);
  free_window(request);
  pages.give_back(std::span(request.pages).subspan(static_cast<size_t>(request.leased_pages)));
  request.pages.clear();
  request.lease = Lease();
  request.leased_pages = 0;
  request.computed_len = 0;
}

// Keeps the pages of a request that ended well in the tree, because the next turn of a conversation
// begins with them. Its last token was not computed, or only by a row too many.
void Scheduler::State::finish(std::unique_ptr<Request> request) {
  if (request->finish == FinishReason::stop || request->finish == FinishReason::length)
    cache_pages(*request,
                std::min(request->computed_len, static_cast<int>(request->tokens.size()) - 1));
  states.end(*request);
  if (request->lease)
    sessions.protect(request->session, request->cache_namespace,
                     std::span(request->tokens).first(static_cast<size_t>(request->lease.len())),
                     now);
  if (request->num_batches == 0) return close(std::move(request));
  request->times.finished = now;  // set already, since clients may read it before the rows are done
  leaving.push_back(std::move(request));
}

void Scheduler::State::close(std::unique_ptr<Request> request) {
  if (request->state != Request::State::waiting) waiting.left(*request);
  free_pages(*request);
  request->group = nullptr;
  request->state = Request::State::finished;
  request->times.finished = now;
  finished.push_back(std::move(request));
}

}  // namespace hocket
