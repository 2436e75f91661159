// y[m, n] = x[m, k] . w[k, n] in the canonical order; with Store::add, y + that product (one
// addition an element).
// Shapes: x [rows, k] of w's element type, padding readable and zero; w packed; y [rows, n] fp32;
// rows >= 0.   Errors: none; shapes are checked.   Thread: engine; workers split column panels.
// Bits: equal in every body.
#pragma once

#include "compute/kernels/backend.h"
#include "compute/kernels/packed_weight.h"

namespace hocket {

enum class Store : uint8_t { overwrite, add };

void linear(Backend& backend, MatrixView x, const PackedWeight& w, View<float> y,
            Store store = Store::overwrite);

}  // namespace hocket
