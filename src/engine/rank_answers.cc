#include "engine/rank_answers.h"

#include <algorithm>
#include <new>
#include <thread>
#include <utility>

namespace hocket {

bool RankAnswers::add(const RequestInput& input) {
  const int from = input.sampling.prompt_logprobs_from;
  const size_t prompt_len = input.prompt.size();
  try {
    live_.insert(input.id);
    if (from >= 0)
      prompt_logprobs_[input.id].resize(prompt_len - std::min<size_t>(from, prompt_len));
    return true;
  } catch (const std::bad_alloc&) {
    forget(input.id);
    return false;
  }
}

void RankAnswers::forget(RequestId id) {
  live_.erase(id);
  prompt_logprobs_.erase(id);
}

void RankAnswers::keep(Flight& flight) {
  keep_prompt_logprobs(flight);
  if (flight.wants_routed) keep_routed(flight);
}

void RankAnswers::keep_prompt_logprobs(Flight& flight) {
  for (PromptRow& row : flight.prompt_rows) {
    const auto kept = prompt_logprobs_.find(row.request);
    if (kept == prompt_logprobs_.end()) continue;  // its request has been answered
    HOCKET_CHECK(static_cast<size_t>(row.index) < kept->second.size());
    kept->second[row.index] = std::move(row.found);
  }
}

// Skips a row of an answer that has ended meanwhile.
void RankAnswers::keep_routed(const Flight& flight) {
  const auto ids_of = [&](int rows) {
    return num_routed_ids(rows, model_.num_layers, model_.moe.top_k);
  };
  for (size_t i = 0; i < flight.batch->slices.size(); ++i) {
    const Slice& slice = flight.batch->slices[i];
    const Request& request = *slice.request;
    if (!request.sampling.return_routed_experts || !live_.contains(request.id)) continue;
    std::vector<uint16_t>& kept = routed_[request.id];
    kept.resize(std::max(kept.size(), ids_of(slice.begin + slice.len)));
    std::ranges::copy(flight.routed.rows(flight.row_begins[i], slice.len),
                      kept.begin() + static_cast<std::ptrdiff_t>(ids_of(slice.begin)));
  }
}

void RankAnswers::send_tokens(Flight& flight) {
  size_t next = 0;
  for (const Slice& slice : flight.batch->slices) {
    const size_t first = next;
    next += static_cast<size_t>(slice.num_samples());
    // No token was taken: the request had ended, or it ends with an error.
    if (slice.num_appended > 0) send_tokens(slice, first, flight);
  }
}

// Sends the tokens that were sampled for a slice, from `first` on in flight.sampled. A summary with
// send_end() reports an error.
void RankAnswers::send_tokens(const Slice& slice, size_t first, Flight& flight) {
  Request& request = *slice.request;
  RequestOutput output{.id = request.id};
  if (request.generated() == slice.num_appended + slice.num_forced) {
    if (auto node = prompt_logprobs_.extract(request.id); !node.empty())
      output.prompt_logprobs =
          std::make_unique<std::vector<PositionLogprobs>>(std::move(node.mapped()));
  }
  const size_t last = first + static_cast<size_t>(slice.num_appended) - 1;
  for (size_t i = first; i <= last; ++i) {
    if (i > first) send(std::exchange(output, {.id = request.id}));
    output.token = flight.sampled[i].token;
    output.logprobs = std::move(flight.logprobs[i]);
  }
  for (const TokenId forced : flight.sampled[last].forced.first(slice.num_forced))
    send(std::exchange(output, {.id = request.id, .token = forced}));
  if (request.finish != FinishReason::none && request.finish != FinishReason::error)
    output.summary = summarise(request);
  send(std::move(output));
}

void RankAnswers::send_known(RequestId id, std::span<const TokenId> answer) {
  for (const TokenId token : answer) send({.id = id, .token = token, .known = true});
}

void RankAnswers::send_end(Request& request) {
  if (live_.contains(request.id)) send({.id = request.id, .summary = summarise(request)});
}

std::unique_ptr<RequestSummary> RankAnswers::summarise(Request& request) {
  forget(request.id);
  auto chosen = routed_.extract(request.id);
  report_.count_end(request.finish);
  auto summary = std::make_unique<RequestSummary>();
  summary->finish = request.finish;
  summary->matched_stop = request.matched_stop;
  summary->error = std::move(request.error);
  summary->prompt_tokens = request.prompt_len;
  summary->cached_tokens = request.cached_len;
  if (tier_ != nullptr) summary->fetched_tokens = tier_->fetched(request.id);
  summary->recomputed_tokens = request.recomputed_len;
  summary->generated_tokens = request.generated();
  summary->num_retractions = request.num_retractions;
  summary->drafts = request.drafts;
  summary->rank = rank_;
  summary->times = request.times;
  if (!chosen.empty()) {
    const int num_rows = static_cast<int>(request.tokens.size()) - 1;
    std::vector<uint16_t>& ids = chosen.mapped();
    ids.resize(std::min(ids.size(), num_routed_ids(num_rows, model_.num_layers, model_.moe.top_k)));
    summary->routed = std::make_shared<RoutedExperts>(
        RoutedExperts{model_.num_layers, model_.moe.top_k, std::move(ids)});
  }
  return summary;
}

void RankAnswers::refuse(RequestId id, Error why) {
  auto summary = std::make_unique<RequestSummary>();
  summary->finish = FinishReason::error;
  summary->error = std::move(why);
  report_.count_end(FinishReason::error);
  send({.id = id, .summary = std::move(summary)});
}

// The reader is faster than a step; if it still falls behind, the step waits and no token is lost.
void RankAnswers::send(RequestOutput&& output) {
  while (!outbox_->push(output)) {
    if (outbox_->closed()) return;
    HOCKET_CHECK(may_wait_);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace hocket
