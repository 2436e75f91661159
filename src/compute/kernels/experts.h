// SwiGLU MLPs over rows sorted by expert: y = down( silu(gate x) * up x ), the middle rounded to
// the activation type. Products and biases are those of linear.h: gate, up and down have their bias
// before silu, the product of gate and up, and the rounding of y. A dense MLP is the case of one
// expert.
#pragma once

#include <cstdint>
#include <span>

#include "compute/kernels/backend.h"
#include "compute/kernels/packed_weight.h"

namespace hocket {

// gate_up: panels alternate gate, up, gate, up, ... (n = 2 * round_up(intermediate, 32)), so that
// one task holds both; so does its bias. Of any format; all experts of a call have those of the
// first, and its groups.
struct ExpertWeights {
  PackedWeight gate_up;  // k = hidden
  PackedWeight down;     // n = hidden, k = intermediate
};

// Shapes: x [rows, hidden]; offsets [num_experts + 1]: rows offsets[e] up to offsets[e + 1] are of
// expert e, perhaps none; middle [>= rows, intermediate] scratch of the activation type; y [rows,
// hidden] of the activation type (each row rounded) or fp32.   Errors: none; shapes are checked.
// Thread: engine; workers take (expert, panels).   Bits: equal in every body.
struct ExpertsCall {
  MatrixView x;
  std::span<const int32_t> offsets;
  std::span<const ExpertWeights> experts;
  int intermediate = 0;
  MatrixView middle;
  MatrixView y;
};
void run_experts(Backend& backend, const ExpertsCall& call);

}  // namespace hocket
