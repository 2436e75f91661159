// Results that a rank keeps for its requests' answers, and how it sends them.
#include <algorithm>
#include <thread>

#include "engine/rank.h"

namespace hocket {

void Rank::keep_prompt_logprobs(Flight& flight) {
  for (PromptRow& row : flight.prompt_rows) {
    const auto kept = prompt_logprobs.find(row.request);
    if (kept == prompt_logprobs.end()) continue;  // its request has been answered
    HOCKET_CHECK(static_cast<size_t>(row.index) < kept->second.size());
    kept->second[row.index] = std::move(row.found);
  }
}

// Skips a row of an answer that has ended meanwhile.
void Rank::keep_routed(const Flight& flight) {
  const ModelConfig& model = runner->info().model;
  const auto ids_of = [&](int rows) {
    return num_routed_ids(rows, model.num_layers, model.moe.top_k);
  };
  for (size_t i = 0; i < flight.batch->slices.size(); ++i) {
    const Slice& slice = flight.batch->slices[i];
    const Request& request = *slice.request;
    if (!request.sampling.return_routed_experts || !live.contains(request.id)) continue;
    std::vector<uint16_t>& kept = routed[request.id];
    kept.resize(std::max(kept.size(), ids_of(slice.begin + slice.len)));
    std::ranges::copy(flight.routed.rows(flight.row_begins[i], slice.len),
                      kept.begin() + static_cast<std::ptrdiff_t>(ids_of(slice.begin)));
  }
}

// Answers requests that ended without a token of this step: aborted, failed, or out of memory.
void Rank::send_finished() {
  if (!scheduler.has_finished()) return;
  for (const std::unique_ptr<Request>& request : scheduler.take_finished()) {
    if (live.contains(request->id)) send({.id = request->id, .summary = summarise(*request)});
    grammars.forget(request->id);  // its last row is done
  }
}

std::unique_ptr<RequestSummary> Rank::summarise(Request& request) {
  live.erase(request.id);
  prompt_logprobs.erase(request.id);
  auto chosen = routed.extract(request.id);
  {
    std::lock_guard lock(stats_mutex);
    ++(request.finish == FinishReason::abort   ? stats.num_requests_aborted
       : request.finish == FinishReason::error ? stats.num_requests_failed
                                               : stats.num_requests_finished);
  }
  auto summary = std::make_unique<RequestSummary>();
  summary->finish = request.finish;
  summary->matched_stop = request.matched_stop;
  summary->error = std::move(request.error);
  summary->prompt_tokens = request.prompt_len;
  summary->cached_tokens = request.cached_len;
  summary->recomputed_tokens = request.recomputed_len;
  summary->generated_tokens = request.generated();
  summary->num_retractions = request.num_retractions;
  summary->rank = rank_index();
  summary->times = request.times;
  if (!chosen.empty()) {
    const ModelConfig& model = runner->info().model;
    const int num_rows = static_cast<int>(request.tokens.size()) - 1;
    std::vector<uint16_t>& ids = chosen.mapped();
    ids.resize(std::min(ids.size(), num_routed_ids(num_rows, model.num_layers, model.moe.top_k)));
    summary->routed = std::make_shared<RoutedExperts>(
        RoutedExperts{model.num_layers, model.moe.top_k, std::move(ids)});
  }
  return summary;
}

void Rank::refuse(RequestId id, Error why) {
  auto summary = std::make_unique<RequestSummary>();
  summary->finish = FinishReason::error;
  summary->error = std::move(why);
  {
    std::lock_guard lock(stats_mutex);
    ++stats.num_requests_failed;
  }
  send({.id = id, .summary = std::move(summary)});
}

// The reader is faster than a step; if it still falls behind, the step waits and no token is lost.
void Rank::send(RequestOutput&& output) {
  while (!outbox->push(output)) {
    if (outbox->closed()) return;
    HOCKET_CHECK(threaded.load());
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

}  // namespace hocket
