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

// Fills `forward` and `outputs` (one entry an output row). Rows stand in slice order.
void prepare(const Batch& batch, int page_tokens, ForwardBatch& forward,
             std::vector<OutputRow>& outputs);

}  // namespace hocket
