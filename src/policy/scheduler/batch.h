// The work of one step: slices of requests, and the page copies to make before them. Holds only ids
// and lengths.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "core/forward_mode.h"
#include "policy/scheduler/request.h"

namespace hocket {

// Most drafts of a request in a step.
inline constexpr int kMaxDrafts = 8;

// The rows for tokens [begin, begin + len) of `request`; pages for them are already assigned. The
// last num_drafts of them are drafts: guesses of the request's next tokens, which count if sampling
// draws them, too.
//
//   tokens   | begin .... known | draft 0 | draft 1 | .. begin + len
//   sampled                  0         1         2        one token behind each of these rows
struct Slice {
  Request* request = nullptr;  // alive until this batch is committed
  int begin = 0;
  int len = 0;
  // True: the logits of the last known token's row, and of each draft's, give the token after it;
  // false for a middle chunk, which has no drafts.
  bool is_sampled = false;
  int num_drafts = 0;
  std::array<TokenId, kMaxDrafts> drafts{};
  bool are_predicted = false;  // the drafts are of RequestInput::prediction
  // If >= begin: each row from this token on also reports the log-probability of the token after
  // it.
  int logprobs_from = -1;
  // If >= 0: the token of the only row is not known yet. It is sampled by the batch before this
  // one, which is under way: the sample of this index.
  int pending_sample = -1;
  // Models with delta nets (compute/kernels/delta_state.h): its block slot, and its states.
  // load_state_at: the border at which the block slot is filled from the state there; -1: the slot
  // has the tokens before this slice.
  int block = -1;
  int load_state_at = -1;
  std::array<StateSlot, kMaxStateSlots> states{};
  int num_states = 0;
  // Set by commit(): how many sampled tokens were appended to the request, and how many forced
  // ones behind them.
  int num_appended = 0, num_forced = 0;

  void add_state(StateSlot state) { states[static_cast<size_t>(num_states++)] = state; }
  // Returns how many tokens are sampled: those after the first failed draft are left out.
  int num_samples() const { return is_sampled ? 1 + num_drafts : 0; }
  // Returns how many drafts were accepted: each saved a step, since a token was appended behind it.
  int num_accepted() const { return std::max(0, num_appended - 1); }
  // Returns the token of a row. Precondition: it is known or a draft.
  TokenId token(int position) const {
    const int draft = position - (begin + len - num_drafts);
    return draft < 0 ? request->tokens[static_cast<size_t>(position)]
                     : drafts[static_cast<size_t>(draft)];
  }
};

// Copies the first `tokens` tokens of page `from` to page `to` before the forward pass; in models
// with sliding windows also those of two pages of window layers.
struct PageCopy {
  PageId from = kNoPage, to = kNoPage;
  int tokens = 0;
  PageId window_from = kNoPage, window_to = kNoPage;
};

// Most tokens that a grammar forces at once (SampledToken::forced).
inline constexpr int kMaxForcedTokens = 32;

struct Batch {
  ForwardMode mode = ForwardMode::idle;
  std::vector<Slice> slices;  // chunks; then answers with several rows; then answers with one row
  std::vector<PageCopy> copies;
  int num_rows = 0;         // sum of len over all slices
  int num_decode_rows = 0;  // the last slices, one row each
  // The slices of answers with several rows, for forced tokens and drafts; their rows; all drafts.
  int num_multirow_slices = 0, num_multirow_rows = 0;
  int num_drafts = 0;

  // The state when the batch was made, for logs and counters. cached_tokens: found in the cache by
  // prompts that begin, or begin again, in this batch.
  int64_t cached_tokens = 0;
  int64_t pending_tokens = 0;  // prompt tokens still to compute after this batch
  int num_running = 0;         // requests whose prompts were done before this batch
  int num_waiting = 0;
  bool overlapped = false;  // true: made while the batch before it was under way

  // True if this rank has no rows but other ranks compute: the step is run without rows, so that
  // the others need not wait for this rank (SchedulerHooks::any_rank_computes).
  bool idle_step = false;

  int num_answers() const { return num_multirow_slices + num_decode_rows; }
  int num_decode_rows_total() const { return num_multirow_rows + num_decode_rows; }
  int num_samples() const {
    int sum = 0;
    for (const Slice& slice : slices) sum += slice.num_samples();
    return sum;
  }
  // Returns true if there is nothing to run.
  bool empty() const { return slices.empty() && !idle_step; }
  // Adds a slice of the request's next rows, or rows to one. The caller takes pages for them.
  Slice& add_rows(Request& request, int count);
  void lengthen(Slice& slice, int count);
  void add_drafts(Slice& slice, std::span<const TokenId> guesses);
  // Removes all rows, and keeps the memory of the lists.
  void clear() {
    mode = ForwardMode::idle;
    slices.clear();
    copies.clear();
    num_rows = num_decode_rows = num_multirow_slices = num_multirow_rows = num_drafts = 0;
    cached_tokens = 0;
    idle_step = false;
  }
};

// The state of an answer's grammar after a token.
enum class GrammarVerdict : uint8_t {
  may_continue,  // more may follow, or the answer has no grammar
  ended,         // only an end token may follow
  failed,        // no token is allowed
};

// The sampler's choice behind one row. The choices are in slice order, Slice::num_samples() for
// each slice; those behind a draft that was not accepted keep the values below.
struct SampledToken {
  TokenId token{-1};
  // The request ends with an error: the row's logits were not finite, its grammar failed, or there
  // was no memory for its log-probabilities (no_memory).
  bool failed = false, no_memory = false;
  GrammarVerdict grammar = GrammarVerdict::may_continue;
  // Tokens that must follow and need not be sampled; the next slice has rows for all of them. With
  // forced tokens, `grammar` is the state after the last one. Borrowed until the commit; empty in
  // overlapped steps, and before an accepted draft.
  std::span<const TokenId> forced = {};
};

}  // namespace hocket
