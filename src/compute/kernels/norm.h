// RMSNorm: y = round( (x * inv) * w ), inv = 1 / sqrt(mean(x^2) + eps), all in fp32, one rounding.
// The sum of squares runs in 16 lanes (element i in lane i mod 16, fma), then the tree 8-4-2-1.
// Shapes: x [rows, n] fp32; w [n] fp32; y [rows, n] of the activation type, or x itself.
// Thread: engine; workers split rows.
// Source: docs/contracts/arithmetic.md, "reductions".
#pragma once

#include <span>

#include "compute/kernels/backend.h"

namespace hocket {

void rms_norm(Backend& backend, View<const float> x, std::span<const float> w, float eps,
              MatrixView y);

// The same with y = x, and y += that, both in fp32; x is overwritten.
void rms_norm_in_place(Backend& backend, View<float> x, std::span<const float> w, float eps);
void add_rms_norm(Backend& backend, View<float> x, std::span<const float> w, float eps,
                  View<float> y);

}  // namespace hocket
