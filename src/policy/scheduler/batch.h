// What one step runs: slices of requests, and the page copies to make before it. Ids and lengths
// only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "core/forward_mode.h"
#include "policy/scheduler/request.h"

namespace hocket {

// Rows for tokens [begin, begin + len) of `request`; pages for them are already assigned.
struct Slice {
  Request* request = nullptr;  // alive until this batch is committed
  int begin = 0;
  int len = 0;
  bool samples = false;    // the last row's logits choose the next token (false for a middle chunk)
  int logprobs_from = -1;  // >= begin: rows from this token on also report the log-probability of
                           // the token after them
  int future = -1;        // >= 0: the token of the only row is not known yet; it is the `future`-th
                          // that the batch before this one samples
  bool accepted = false;  // by commit(): the sampled token is the request's next
  int num_forced = 0;     // by commit(): so many of the tokens that it forced follow it
};

// Copy the first `tokens` tokens of page `from` to page `to`, before the forward pass.
struct PageCopy {
  PageId from = kNoPage, to = kNoPage;
  int tokens = 0;
};

struct Batch {
  ForwardMode mode = ForwardMode::idle;
  std::vector<Slice> slices;  // chunks first, then answers: those with several rows, then the
                              // others
  std::vector<PageCopy> copies;
  int num_rows = 0;         // sum of the slices' len
  int num_decode_rows = 0;  // the last slices, a row each
  // Of answers with several rows, for tokens that a grammar forced.
  int num_forced_slices = 0, num_forced_rows = 0;

  // How things stood when it was made, for logs and counters.
  int64_t cached_tokens = 0;   // that prompts begun in it, or begun again, found in the cache
  int64_t pending_tokens = 0;  // to compute after it, of prompts that wait or are cut
  int num_running = 0;         // requests whose prompts were done before
  int num_waiting = 0;
  bool overlapped = false;  // while the batch before it was under way

  // No rows here, but other ranks compute: a step to be run with none, so that nobody waits for
  // this rank (Outside::agree).
  bool idle_step = false;

  int num_answers() const { return num_forced_slices + num_decode_rows; }
  int num_answer_rows() const { return num_forced_rows + num_decode_rows; }
  // Nothing to run.
  bool empty() const { return slices.empty() && !idle_step; }
};

// Where a token leaves an answer that follows a grammar.
enum class GrammarVerdict : uint8_t {
  goes_on,  // or it follows none
  ended,    // nothing but an end token may follow
  failed,   // nothing that is allowed is left
};

// What the sampler chose for a slice with samples == true, in slice order.
struct SampledToken {
  TokenId token{-1};
  bool failed = false;  // the row's logits were not finite, or as `grammar` says: the request ends
                        // with an error
  GrammarVerdict grammar = GrammarVerdict::goes_on;
  // What must follow the token, so that nobody need sample it: next come the rows of all of them at
  // once. Of those that a grammar ends with, `grammar` is of the last. Borrowed until the commit;
  // empty in overlapped steps.
  std::span<const TokenId> forced = {};
};

}  // namespace hocket
