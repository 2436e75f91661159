// Cuts a batch into halves: neighbouring ranges of rows. A sequence that straddles the cut becomes
// two neighbouring ranges; the first half leads, since the second reads the keys that it writes.
#pragma once

#include <span>

#include "compute/forward/half.h"

namespace hocket {

// Where the second half begins, in [0, num_rows]; num_rows: one half plays alone and the other is
// empty.
struct SplitRule {
  int first_rows = 0;
};

// Half as many rows for each.
SplitRule even_split(const ForwardBatch& batch);

// Fills halves[0 .. n): one half takes all rows; two are cut by `rule`. Plans each half's
// attention. Allocates nothing after reserve_halves().   Thread: engine.
void split_batch(const ForwardBatch& batch, SplitRule rule, int num_heads, const KvShape& shape,
                 std::span<Half> halves);
void reserve_halves(std::span<Half> halves, int max_rows, int max_sequences);

}  // namespace hocket
