// Rows of activations as int8, with one scale each: dispatch sends them to experts under
// --dispatch-dtype int8, and combine sends sums of experts' rows under --combine-dtype int8.
//
//   a row of n   | n numbers, int8 | zeros | scale, fp32 |   quantized_columns(n) bytes
//
// amax = largest |x| of the row; scale = amax / 127; number = x * (127 / amax), to nearest even;
// dequantized, x = round(number * scale). Tiny rows become zero; a row with a NaN or an infinity
// is dequantized to all NaN (QuantizeRow).   Source: docs/contracts/arithmetic.md, "dispatch".
// Thread: engine; workers split rows.
#pragma once

#include <span>

#include "compute/kernels/backend.h"

namespace hocket {

constexpr int64_t quantized_columns(int64_t n) {
  return round_up(n + int64_t{sizeof(float)}, kBlockK);
}

// Returns the column at which a row's scale begins.
constexpr int64_t scale_column(int64_t n) {
  return quantized_columns(n) - int64_t{sizeof(float)};
}

// Shapes: x [rows, n]; out [rows, quantized_columns(n)] int8.
void quantize_rows(Backend& backend, MatrixView x, MatrixView out);
// out[i, :] = the row of n numbers of `dtype` that starts at rows[i].
void quantize_rows(Backend& backend, std::span<const std::byte* const> rows, DType dtype, int64_t n,
                   MatrixView out);
// out[i, :] = the row that starts at rows[i].
void dequantize_rows(Backend& backend, std::span<const std::byte* const> rows, MatrixView out);
// out[i, :] = x[rows[i], :].   Shapes: x [any, quantized_columns(n)] int8, out [rows.size(), n].
void dequantize_rows(Backend& backend, MatrixView x, std::span<const int32_t> rows, MatrixView out);

}  // namespace hocket
