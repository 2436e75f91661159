// The work of one step: slices of requests, and the page copies to make before them. Holds only ids
// and lengths.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "core/forward_mode.h"
#include "policy/scheduler/request.h"

namespace hocket {

// The rows for tokens [begin, begin + len) of `request`; pages for them are already assigned.
struct Slice {
  Request* request = nullptr;  // alive until this batch is committed
  int begin = 0;
  int len = 0;
  // True: the last row's logits give the next token; false for a middle chunk.
  bool samples = false;
  // If >= begin: each row from this token on also reports the log-probability of the token after
  // it.
  int logprobs_from = -1;
  // If >= 0: the token of the only row is not known yet; it is the sample of this index in the
  // batch before this one.
  int future = -1;
  // Models with delta nets: its block slot, and where its states are
  // (compute/kernels/delta_state.h). opens_at: the border at which the block slot is filled anew;
  // -1: it goes on.
  int block = -1;
  int opens_at = -1;
  std::array<StatePlace, kMaxStatePlaces> places{};
  int num_places = 0;
  bool accepted = false;  // set by commit(): the sampled token became the request's next one
  int num_forced = 0;     // set by commit(): forced tokens that were appended after it
};

// Copies the first `tokens` tokens of page `from` to page `to` before the forward pass; in models
// with sliding windows also those of two pages of window layers.
struct PageCopy {
  PageId from = kNoPage, to = kNoPage;
  int tokens = 0;
  PageId window_from = kNoPage, window_to = kNoPage;
};

// Most tokens that a grammar forces at once (SampledToken::forced).
inline constexpr int kMostForcedTokens = 32;

struct Batch {
  ForwardMode mode = ForwardMode::idle;
  std::vector<Slice> slices;  // chunks; then answers with several rows; then answers with one row
  std::vector<PageCopy> copies;
  int num_rows = 0;         // sum of len over all slices
  int num_decode_rows = 0;  // the last slices, one row each
  // Answers with several rows, because a grammar forced tokens; and their rows.
  int num_forced_slices = 0, num_forced_rows = 0;

  // The state when the batch was made, for logs and counters. cached_tokens: found in the cache by
  // prompts that begin, or begin again, in this batch.
  int64_t cached_tokens = 0;
  int64_t pending_tokens = 0;  // prompt tokens still to compute after this batch
  int num_running = 0;         // requests whose prompts were done before this batch
  int num_waiting = 0;
  bool overlapped = false;  // true: made while the batch before it was under way

  // True if this rank has no rows but other ranks compute: the step is run without rows, so that
  // the others need not wait for this rank (SchedulerHooks::agree).
  bool idle_step = false;

  int num_answers() const { return num_forced_slices + num_decode_rows; }
  int num_answer_rows() const { return num_forced_rows + num_decode_rows; }
  // Returns true if there is nothing to run.
  bool empty() const { return slices.empty() && !idle_step; }
};

// The state of an answer's grammar after a token.
enum class GrammarVerdict : uint8_t {
  goes_on,  // more may follow, or the answer has no grammar
  ended,    // only an end token may follow
  failed,   // no token is allowed
};

// The sampler's choice for one slice with samples == true; the choices come in slice order.
struct SampledToken {
  TokenId token{-1};
  // The request ends with an error: the row's logits were not finite, or its grammar failed.
  bool failed = false;
  GrammarVerdict grammar = GrammarVerdict::goes_on;
  // Tokens that must follow and need not be sampled; the next slice has rows for all of them. With
  // forced tokens, `grammar` is the state after the last one. Borrowed until the commit; empty in
  // overlapped steps.
  std::span<const TokenId> forced = {};
};

}  // namespace hocket
