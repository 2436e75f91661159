#include "policy/scheduler/token_acceptor.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "policy/scheduler/request_groups.h"

namespace hocket {
namespace {

bool contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

void TokenAcceptor::take(Slice& slice, std::span<const SampledToken> sampled) {
  Request& request = *slice.request;
  for (const SampledToken& token : sampled) {
    slice.num_forced = accept_forced(request, token);
    if (request.finish == FinishReason::error) break;
    const auto draft = static_cast<size_t>(slice.num_appended++);
    const bool is_accepted =
        std::cmp_less(draft, slice.num_drafts) && token.token == slice.drafts[draft];
    if (!is_accepted || request.finish != FinishReason::none) break;
    HOCKET_CHECK(token.forced.empty());
  }
  request.computed_len += slice.num_accepted();
  if (slice.num_drafts > 0) count_drafts(slice);
}

void TokenAcceptor::count_drafts(const Slice& slice) {
  slice.request->drafts.add(
      {.num_verified = 1,
       .num_drafts = slice.num_drafts,
       .num_accepted = slice.num_accepted(),
       .num_predicted = slice.are_predicted ? slice.num_drafts : 0,
       .num_predicted_accepted = slice.are_predicted ? slice.num_accepted() : 0});
  ++counters_.num_verified_total;
  for (size_t i = 0; std::cmp_less(i, slice.num_drafts); ++i) {
    ++counters_.drafted_total[i];
    if (std::cmp_less(i, slice.num_accepted())) ++counters_.accepted_total[i];
  }
}

// Appends the sampled token and those that it forced, up to the end. Returns how many forced ones.
int TokenAcceptor::accept_forced(Request& request, const SampledToken& sampled) {
  const std::span<const TokenId> forced = sampled.forced;
  if (forced.empty()) return accept(request, sampled), 0;
  HOCKET_CHECK((!sampled.failed && request.num_pending == 0));
  accept(request, {.token = sampled.token});
  int taken = 0;
  while (taken < std::ssize(forced) && request.finish == FinishReason::none) {
    const TokenId token = forced[static_cast<size_t>(taken++)];
    const bool is_last = taken == std::ssize(forced);
    accept(request,
           {.token = token, .grammar = is_last ? sampled.grammar : GrammarVerdict::may_continue});
  }
  counters_.forced_tokens_total += static_cast<uint64_t>(taken);
  return taken;
}

void TokenAcceptor::accept(Request& request, const SampledToken& sampled) {
  if (std::optional<Error> why = why_unusable(request, sampled))
    return request.fail(std::move(*why));
  if (request.times.prefill_done == TimePoint{}) request.times.prefill_done = now_;
  request.state = Request::State::running;
  request.tokens.push_back(sampled.token);
  ++counters_.generated_tokens_total;
  if (request.group != nullptr) request.group->served += kNewTokenWeight;

  const SamplingParams& sampling = request.sampling;
  const bool is_eos = contains(options_.eos_ids, sampled.token);
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

std::optional<Error> TokenAcceptor::why_unusable(const Request& request,
                                                 const SampledToken& sampled) const {
  if (sampled.no_memory)
    return error(ErrorCode::out_of_memory,
                 "after {} tokens of the answer there was no memory for its log-probabilities",
                 request.generated())
        .with_fix("try again later, or without log-probabilities");
  if (sampled.failed && sampled.grammar == GrammarVerdict::failed)
    return error(ErrorCode::invalid_request,
                 "after {} tokens of the answer nothing is left that the grammar allows, or it is "
                 "too ambiguous to be followed any further",
                 request.generated())
        .with_fix("a simpler grammar")
        .with_param(request.sampling.grammar ? request.sampling.grammar->field : "");
  if (sampled.failed)
    return error(ErrorCode::bad_logits,
                 "the logits after {} tokens are not finite, or its bias and penalties make them "
                 "so, or leave no token",
                 request.tokens.size());
  const int id = value(sampled.token);
  if (id < 0 || (options_.vocab_size > 0 && id >= options_.vocab_size))
    return error(ErrorCode::bad_logits, "token {} after {} tokens is outside the vocabulary of {}",
                 id, request.tokens.size(), options_.vocab_size);
  return std::nullopt;
}

}  // namespace hocket
