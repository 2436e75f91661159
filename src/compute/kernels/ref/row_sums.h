// Sums and maxima of a row in sixteen lanes, as docs/contracts/arithmetic.md defines them.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "compute/kernels/arithmetic/math.h"

namespace hocket::ref {

using Sixteen = std::array<float, 16>;

inline float tree_sum(Sixteen lanes) {
  for (int width : {8, 4, 2, 1})
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
  return lanes[0];
}

inline float larger(float a, float b) {
  return a > b ? a : b;
}

inline float row_max(const float* x, int64_t n) {
  Sixteen lanes;
  lanes.fill(-math::kInfinity);
  for (int64_t i = 0; i < n; ++i) lanes[i % 16] = larger(x[i], lanes[i % 16]);
  for (int width : {8, 4, 2, 1})
    for (int i = 0; i < width; ++i) lanes[i] = larger(lanes[i], lanes[i + width]);
  return lanes[0];
}

inline float sum_of_squares(const float* x, int64_t n) {
  Sixteen squares{};
  for (int64_t i = 0; i < n; ++i) squares[i % 16] = std::fma(x[i], x[i], squares[i % 16]);
  return tree_sum(squares);
}

inline float inverse_rms(const float* x, int64_t n, float eps) {
  return 1.0f / std::sqrt(sum_of_squares(x, n) / static_cast<float>(n) + eps);
}

}  // namespace hocket::ref
