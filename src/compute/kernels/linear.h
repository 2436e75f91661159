// y = x . w (+ w's bias, one addition per element); with StoreMode::add, y + that (one more).
//
//   bf16, f32    the canonical product
//   fp8          canonical within each group of k, then its scale
//   mxfp4, mxfp8, nvfp4   the canonical product, then w's column scales
//   int8, int4   rows of x are quantized by w's groups; sums are exact, then scales
//   GGUF's (q8_0, q4_k to q6_k, tables)   the same in groups of 32, with their own scales
//
// arithmetic/product.h defines each in full. Shapes: x [rows, k] of activation_dtype(w.format),
// padding readable and zero; w packed, of any format; y [rows, n] fp32; rows >= 0.   Errors: none;
// shapes are checked. Thread: engine; workers split panels, and rows where panels are few.   Bits:
// equal in every body.
#pragma once

#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/kernels/backend.h"

namespace hocket {

enum class StoreMode : uint8_t { overwrite, add };

void linear(Backend& backend, MatrixView x, const PackedWeight& w, View<float> y,
            StoreMode store = StoreMode::overwrite);

}  // namespace hocket
