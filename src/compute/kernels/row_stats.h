// Statistics of rows of logits that the sampler needs, in the canonical order (16 lanes, tree).
#pragma once

#include <span>

#include "compute/kernels/arithmetic/rows.h"
#include "compute/kernels/backend.h"

namespace hocket {

// Shapes: x [rows, n] fp32; stats [rows].   Thread: engine; workers split rows.
void row_stats(Backend& backend, View<const float> x, std::span<RowStats> stats);

// p[i] = exp(x[i] - max) for one row.   Thread: any worker.
void exp_row(const Backend& backend, std::span<const float> x, float max, std::span<float> p);

}  // namespace hocket
