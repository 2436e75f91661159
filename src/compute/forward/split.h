// Cuts a batch into halves: neighbouring ranges of rows. A sequence on the cut becomes two
// neighbouring ranges; the first half leads, since the second reads the keys that it writes. The
// place of the cut changes times but no bit.   Source: docs/contracts/overlap.md, "Halves".
#pragma once

#include <span>

#include "compute/forward/half.h"

namespace hocket {

// The row at which the second half begins, in [0, num_rows]. With num_rows one half plays alone and
// the other is empty.
struct SplitRule {
  int first_rows = 0;
};

// The wanted cut of a batch.
struct SplitOptions {
  int share = 32;  // the first half's rows in 64ths of all; 1 .. 63
  int row_tile = 1;
  // The cut is on a border between sequences if that leaves each half at least its share less (0.5
  // - cut_threshold) of all rows; else a sequence is cut. 0 .. 0.5; 0: no sequence is ever cut.
  double cut_threshold = 0.48;
};

// Returns the multiple of `tile` nearest to `wanted` that leaves both halves some of `rows`, the
// lower of two equal ones; `wanted` if there is none.   rows >= 2, wanted in [1, rows - 1].
int nearest_multiple(int wanted, int tile, int rows);
// Returns the rows of the first half by share and row_tile alone, in [1, rows - 1].   rows >= 2.
int rows_by_share(int rows, const SplitOptions& options);

// Returns where to cut. Answers are cut by the number of rows. Prompts and mixed steps are cut at
// the border of sequences nearest to the share, or within a sequence. If the rows were packed, the
// cut moves to the nearest of ForwardBatch::half_borders. With two rows or more no half is empty,
// except if the only sequence must not be cut; a single row goes to the first half. Pure.
SplitRule split_for(const ForwardBatch& batch, const SplitOptions& options);

// The layers that a half's attention is planned for.
struct PlannedLayers {
  int num_heads = 0;  // query heads
  KvShape shape;
};

// Fills halves[0 .. n): one half takes all rows; two are cut by `rule`. Plans each half's
// attention, and that of window layers if there are any (not null). Allocates nothing after
// reserve_halves().   Thread: engine.
void split_batch(const ForwardBatch& batch, SplitRule rule, const PlannedLayers& layers,
                 const PlannedLayers* windows, std::span<Half> halves);
void reserve_halves(std::span<Half> halves, int max_rows, int max_sequences);

}  // namespace hocket
