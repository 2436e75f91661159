// Statistics of rows of logits that the sampler needs, in the canonical order (16 lanes, tree).
#pragma once

#include <span>

#include "compute/kernels/backend.h"

namespace hocket {

struct RowStats {
  float max = 0;
  int argmax = 0;  // lowest index of the largest entry
  float logsumexp = 0;
  // False if any entry is NaN or +inf, or all are -inf; the other fields are then undefined.
  bool finite = false;
};

// Shapes: x [rows, n] fp32; stats [rows].   Thread: engine; workers split rows.
void row_stats(Backend& backend, View<const float> x, std::span<RowStats> stats);

// p[i] = exp(x[i] - max) for one row.   Thread: any worker.
void exp_row(const Backend& backend, std::span<const float> x, float max, std::span<float> p);

}  // namespace hocket
