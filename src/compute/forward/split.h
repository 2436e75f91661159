// Cuts a batch into halves: neighbouring ranges of rows. A sequence that straddles the cut becomes
// two neighbouring ranges; the first half leads, since the second reads the keys that it writes.
// Where it is cut changes times and no bit.   Source: docs/contracts/overlap.md, "Halves".
#pragma once

#include <span>

#include "compute/forward/half.h"

namespace hocket {

// Where the second half begins, in [0, num_rows]; num_rows: one half plays alone and the other is
// empty.
struct SplitRule {
  int first_rows = 0;
};

// How a batch is to be cut.
struct SplitWish {
  int share = 32;  // of 64, of the rows: what the first half is to have; 1 .. 63
  int row_tile = 1;
  // A border between sequences is taken where it leaves each half no less than its share less
  // (0.5 - cut_threshold) of the rows; else a sequence is cut. 0 .. 0.5; 0: none is ever cut.
  double cut_threshold = 0.48;
};

// The multiple of `tile` nearest to `wanted` that leaves both halves some of `rows`, the lower of
// equals; `wanted` where there is none.   rows >= 2, wanted in [1, rows - 1].
int nearest_multiple(int wanted, int tile, int rows);
// Rows of the first half by share and row_tile alone, in [1, rows - 1].   rows >= 2.
int wished_rows(int rows, const SplitWish& wish);

// Answers by rows alone, or as they were packed (ForwardBatch::first_half_rows). Prompts, and mixed
// steps: at the border of sequences that is nearest to the share, or within a sequence. Never an
// empty half where there are two rows, but for one sequence that must not be cut; one row is the
// first half's. Pure.
SplitRule split_for(const ForwardBatch& batch, const SplitWish& wish);

// Fills halves[0 .. n): one half takes all rows; two are cut by `rule`. Plans each half's
// attention. Allocates nothing after reserve_halves().   Thread: engine.
void split_batch(const ForwardBatch& batch, SplitRule rule, int num_heads, const KvShape& shape,
                 std::span<Half> halves);
void reserve_halves(std::span<Half> halves, int max_rows, int max_sequences);

}  // namespace hocket
