// One request as the scheduler sees it: tokens, lengths, pages. Owned by the scheduler from add()
// until it is finished and its last step has been committed.   Thread: engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "core/sampling_params.h"
#include "policy/cache/radix_cache.h"

namespace hocket {

enum class FinishReason : uint8_t { none, stop, length, abort, error };

// Set by the one who adds the request; the scheduler reserves `tokens` to its final size, so that
// decoding never allocates.
struct RequestInput {
  RequestId id{};
  std::vector<TokenId> prompt;  // 1 .. context - max_new_tokens tokens
  SamplingParams sampling;
  std::optional<int> priority;     // SchedulerOptions::priorities; none: the worst
  uint64_t client = 0;             // who asks, for the policy `fair`
  uint64_t routing_key = 0;        // for the policy of that name
  CacheNamespace cache_namespace;  // of adapter, cache_salt and extra_key
  TimePoint arrived{};
  int place_in_request = 0;  // how many texts of the same client's request come before it
};

// When a request passed each stage; unset ones are at the epoch. queued: when it last came to wait.
struct RequestTimes {
  TimePoint arrived{}, queued{}, first_scheduled{}, prefill_done{}, finished{};
};

struct RequestGroup;

struct Request {
  enum class State : uint8_t { waiting, prefilling, running, finished };

  RequestId id{};
  State state = State::waiting;
  std::vector<TokenId> tokens;  // prompt, then generated
  int prompt_len = 0;
  SamplingParams sampling;
  int priority = 0;  // larger first; 0 for all unless priorities are on
  uint64_t client = 0, routing_key = 0;
  CacheNamespace cache_namespace;

  // Kept by the waiting queue.
  int64_t queue_order = 0;       // rises with arrival; negative: retracted, the newest lowest
  uint64_t rows_at_arrival = 0;  // that the server had computed
  uint64_t overdue_at = 0;       // next, once so many have left the queue
  uint64_t skipped_in = 0;       // the last pass that skipped it; 0: none since it came to wait
  RequestGroup* group = nullptr;

  // Of batches that are not committed yet: how many have rows of it, how many tokens they sample,
  // and which of the newest batch's samples is its own (-1: none).
  int num_batches = 0;
  int num_pending = 0;
  int future = -1;

  // KV. Tokens [0, computed_len) have keys and values, or will when the batches in flight are done;
  // pages[i] holds tokens [i P, (i+1) P).
  //   pages   | leased: the tree's, read only | own: written by this request |
  //           0                    leased_pages                      pages.size()
  int computed_len = 0;
  int leased_pages = 0;
  std::vector<PageId> pages;
  Lease lease;

  // Prompt tokens taken from the cache when first admitted (reported as cached_tokens).
  int cached_len = 0;
  int num_retractions = 0;
  int logprobs_done = 0;  // prompt rows before this have reported their log-probabilities
  FinishReason finish = FinishReason::none;
  TokenId matched_stop{-1};  // the stop token, where that ended it
  Error error;               // where finish == error
  RequestTimes times;

  int generated() const { return static_cast<int>(tokens.size()) - prompt_len; }
  // Tokens, those that are being sampled included.
  int len() const { return static_cast<int>(tokens.size()) + num_pending; }
  // Has rows to come after those in flight, as far as is known.
  bool decodes() const { return finish == FinishReason::none && new_tokens_left() > 0; }
  // Rows still to compute before a new token can be sampled; while decoding 1, and one more for
  // each token that was forced.
  int uncomputed() const { return len() - computed_len; }
  int new_tokens_left() const { return sampling.max_new_tokens - (len() - prompt_len); }

  // First row that still has to report a prompt log-probability; -1: none has to. Row i reports on
  // token i + 1, so the prompt's last row has nothing to report.
  int logprobs_from() const {
    if (sampling.prompt_logprobs_from < 0) return -1;
    const int from = std::max(sampling.prompt_logprobs_from - 1, logprobs_done);
    return from < prompt_len - 1 ? from : -1;
  }
  // The tokens that a cached prefix may stand for: never the last, nor rows that have to report.
  std::span<const TokenId> reusable_tokens() const {
    if (sampling.return_routed_experts) return {};
    const int from = logprobs_from();
    const auto count = from >= 0 ? static_cast<size_t>(from) : tokens.size() - 1;
    return std::span(tokens).first(count);
  }
};

}  // namespace hocket
