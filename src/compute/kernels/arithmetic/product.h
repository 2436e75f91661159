// The canonical product: everything that multiplies matrices is built from it. product_bodies.h
// lists its bodies.
//
//   for each k-block of 32, ascending:   e = o = +0
//     for p in 0..15:  e = fma(a[2p], b[2p], e);   o = fma(a[2p+1], b[2p+1], o)
//     c = c + (e + o)
//
// fp32 FMA, round to nearest even, FTZ and DAZ. Source: docs/contracts/arithmetic.md, "the
// canonical product".
#pragma once

#include <cstdint>

#include "compute/kernels/arithmetic/packed_weight.h"

namespace hocket {

// y[rows, panels * 16] = (accumulate ? y : 0) + x[rows, k_blocks * 32] . w
//
// w has `panels` panels, panel_stride elements apart, of k_blocks tiles each. Rows of x are
// x_stride elements apart and readable to whole blocks. rows >= 0. y may have any stride from
// panels * 16 on.
template <class T>
struct Product {
  const T* x = nullptr;
  int64_t x_stride = 0;
  int rows = 0;
  const T* w = nullptr;
  int64_t panel_stride = 0;
  int panels = 0;
  int k_blocks = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  bool accumulate = false;
  // The calling worker's own product_scratch_bytes(rows, k_blocks) bytes, 64-byte aligned.
  void* scratch = nullptr;
};

// y[rows, panels * 16] = x . w for weights under scales (packed_weight.h), groups ascending, from
// acc = +0:
//
//   fp8         p = canonical product of the group's k-blocks, from +0
//               acc = fma(p, scale, acc)
//   int8, int4  s = sum of x * number - zero * x_sum, exact in int32
//               acc = fma(float(s), x_scale * scale, acc)
//   q8_0        the same with zeros of 128
//   q4_k        s = sum of x * number, exact in int32
//               acc = fma(float(s), x_scale * scale, acc)
//               acc = fma(-(x_scale * float(x_sum)), min, acc)
//   q5_k        the same
//   iq4 to tq   s = sum of x * table[number], exact in int32
//               acc = fma(float(s), x_scale * scale, acc)
//   q3_k, iq2_s, iq1_m, q6_k   two integer scales a group
//               s = scale0 * (sum of its first 16 x * number) + scale1 * (that of the others)
//               acc = fma(float(s), x_scale * (d * unit), acc); |s| < 2^24: float(s) is exact
//   mxfp4, mxfp8, nvfp4   the canonical product of x and number * scale, which are bf16, exactly
//
// fp8, mxfp4, mxfp8, nvfp4: x is bf16. Others: x is int8 as QuantizeRow makes it (rows.h),
// with rows padded to 64 and a scale and a sum for each group. Source:
// docs/contracts/arithmetic.md, "integers", "fp8".
template <class X>
struct ScaledProduct {
  const X* x = nullptr;
  int64_t x_stride = 0;
  const float* x_scales = nullptr;  // int8: [rows][groups]
  const int32_t* x_sums = nullptr;  // int8: [rows][groups]
  int rows = 0;
  const std::byte* w = nullptr;
  int64_t panel_bytes = 0;  // bytes from one panel to the next
  int panels = 0;
  int k_blocks = 0;
  int group_blocks = 0;  // k-blocks in a group; 0: a group is half a block
  int groups = 0;
  WeightFormat format = WeightFormat::fp8;
  const std::byte* scales = nullptr;   // as packed_weight.h says
  int64_t panel_scale_bytes = 0;       // bytes from the scales of one panel to those of the next
  const uint8_t* zeros = nullptr;      // int8, int4: [panels][groups][16]
  const NumberTable* table = nullptr;  // formats with a table
  float* y = nullptr;
  int64_t y_stride = 0;
  void* scratch = nullptr;  // scaled_product_scratch_bytes(k) bytes, as in Product
};

// Levels with tiles use them from this many rows on, and the vector body below.
inline constexpr int kTileRows = 8;
// Rows that a vector body multiplies with one panel at a time.
inline constexpr int kVectorRows = 8;
// Rows of one block of result tiles.
inline constexpr int kTileBlockRows = 32;
// Integer groups of at most kMaxTileGroupBlocks blocks are short: tiles keep a span of k as long in
// the first cache, with all of its groups, and multiply it with kMaxTileGroupRows rows at a time.
inline constexpr int kMaxTileGroupBlocks = 4;
inline constexpr int kMaxTileGroupRows = 128;

// Returns the rows that a vector product prepares at once: as many as stay in L2, but 32..96.
constexpr int rows_together(int k_blocks) {
  constexpr int kMin = 32, kMax = 96, kWideNumbers = 128 << 10;
  const int rows = kWideNumbers / (k_blocks * kBlockK);
  return rows < kMin ? kMin : rows < kMax ? rows : kMax;
}
// Scratch for fp8, mxfp4, mxfp8, nvfp4: the widened weights, their results, and the scratch of
// their product.
inline constexpr int64_t kWidenedScratchBytes = 64 << 10;

// Scratch bytes that are enough for every body and every format.
int64_t product_scratch_bytes(int rows, int k_blocks);
int64_t scaled_product_scratch_bytes(int k);

}  // namespace hocket
