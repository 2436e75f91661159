// The messages between the server's threads and the engine's: requests in
// (policy/scheduler/request.h RequestInput), outputs out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/mailbox.h"
#include "base/result.h"
#include "engine/stats/page_tier.h"
#include "policy/scheduler/request.h"

namespace hocket {

struct TokenLogprob {
  TokenId token{-1};
  float logprob = 0;
};

// The log-probabilities at one position: log-softmax of the untouched logits.
struct PositionLogprobs {
  float logprob = 0;              // that of the token at this position
  std::vector<TokenLogprob> top;  // best first, num_top_logprobs of them
};

// The experts that the tokens of a request chose, prompt and answer, without the last token, which
// was never an input.
struct RoutedExperts {
  int num_layers = 0, top_k = 0;
  std::vector<uint16_t> ids;  // [tokens][num_layers][top_k]; 0 in layers without experts
};
inline constexpr int64_t kMaxRoutedIds = int64_t{8} << 20;       // limit of ids of a request
inline constexpr int64_t kMaxPromptLogprobs = int64_t{2} << 20;  // limit of a prompt

// Carries the facts that a request has only once it has ended, with its last output.
struct RequestSummary {
  FinishReason finish = FinishReason::none;
  TokenId matched_stop{-1};  // the stop token that ended it; it was sent as `token` too
  Error error;               // set if finish is error or abort
  int prompt_tokens = 0;
  int cached_tokens = 0;
  PerTier<int> fetched_tokens{};  // those of cached_tokens whose pages were read from there
  int recomputed_tokens = 0;      // the prompt's, although their pages were found (Request)
  int generated_tokens = 0;
  int num_retractions = 0;
  DraftCounts drafts;
  int rank = 0;                                 // rank that computed it
  std::shared_ptr<const RoutedExperts> routed;  // null if not asked for
  // queue = first_scheduled - arrived, prefill = prefill_done - first_scheduled, ...
  RequestTimes times;
};

// One output of one request: a token, and on the last output a summary (which may be sent without a
// token).
struct RequestOutput {
  RequestId id{};
  TokenId token{-1};                           // -1 if none
  bool known = false;                          // true: the token is one of RequestInput::answer
  std::unique_ptr<PositionLogprobs> logprobs;  // null if not asked for
  // These are sent with the first token: entry i is prompt token prompt_logprobs_from + i; token 0
  // has NaN.
  std::unique_ptr<std::vector<PositionLogprobs>> prompt_logprobs;
  std::unique_ptr<RequestSummary> summary;  // on the last output
};

using Outbox = Mailbox<RequestOutput>;
// Returns the number of outputs for which an outbox has room.
inline size_t outbox_size(int max_running_requests) {
  constexpr size_t kMinOutbox = 16384, kOutputsOfARequest = 64;
  return std::max(kMinOutbox, kOutputsOfARequest * static_cast<size_t>(max_running_requests));
}

}  // namespace hocket
