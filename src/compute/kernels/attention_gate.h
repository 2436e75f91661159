// Gates: results that are multiplied by the sigmoid of a projection.
#pragma once

#include "compute/kernels/backend.h"

namespace hocket {

// Gated attention: x = round(x * sigmoid(gate)), head by head. Shapes: gates [rows, >= num_heads *
// step] fp32: head h has its dim gates from column h * step on; x [rows, num_heads * dim] of the
// activation type.
struct AttentionGateCall {
  View<const float> gates;
  int num_heads = 0, dim = 0;
  int64_t step = 0;
  MatrixView x;
};
// Errors: none; shapes are checked.   Thread: engine; workers split rows.   Bits: equal in every
// body.
void gate_attention(Backend& backend, const AttentionGateCall& call);

// One gate a head: x = round(x * sigmoid(gate)). Shapes: gates [rows, heads] fp32; x [rows, heads *
// any] of the activation type.   Errors, thread and bits: as above.
void gate_heads(Backend& backend, View<const float> gates, MatrixView x);

// x *= sigmoid(gate), one gate a row. Shapes: gates [rows, 1]; x [rows, any].
void sigmoid_rows(Backend& backend, View<const float> gates, View<float> x);

}  // namespace hocket
