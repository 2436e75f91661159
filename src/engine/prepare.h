// From the scheduler's batch to the compute wing's: the only place where policy turns into tensors.
// Thread: engine. Allocates nothing after warm-up.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/forward/forward_batch.h"
#include "policy/scheduler/batch.h"

namespace hocket {

// What one row of ForwardBatch::output_rows is for.
struct OutputRow {
  int slice = 0;         // in the batch
  int token = 0;         // index in the request's tokens that this row computed
  bool samples = false;  // its logits choose the next token
  bool reports =
      false;  // the log-probability of the token after it is wanted (prompt log-probabilities)
};

struct PrepareOptions {
  int page_tokens = 0;
  TokenRole prompt_role = TokenRole::prompt;  // given to prompt tokens
};

// Fills `forward` and `outputs` (one entry an output row). Rows stand in slice order.
void prepare(const Batch& batch, const PrepareOptions& options, ForwardBatch& forward,
             std::vector<OutputRow>& outputs);

// Appends rows [row_begin, ...) of one sequence, tokens [begin, end), to forward.sequences: those
// of the prompt apart from those after it.
struct SequenceRows {
  int row_begin = 0;
  int begin = 0, end = 0;  // tokens
  int prompt_len = 0;
  std::span<const PageId> pages;
};
void add_sequence(const SequenceRows& rows, TokenRole prompt_role, ForwardBatch& forward);

}  // namespace hocket
