// Gated MLPs over rows sorted by expert: y = down( silu(gate x) * up x ), or with another
// activation, with the product of silu and up rounded to the activation type. Products and biases
// are those of linear.h: gate's bias is added before silu, up's before the multiplication, down's
// before y is rounded. A dense MLP is the case of one expert.
#pragma once

#include <cstdint>
#include <span>

#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/kernels/backend.h"
#include "core/model_config.h"

namespace hocket {

// The panels of gate_up alternate gate, up, gate, up, ... (n = 2 * round_up(intermediate, 32)), so
// one task holds both; the bias has the same order. Any format, but all experts of a call have the
// format and the scale groups of the first.
struct ExpertWeights {
  PackedWeight gate_up;  // k = hidden
  PackedWeight down;     // n = hidden, k = intermediate
};

// Shapes: x [rows, hidden]; offsets [runs][num_experts + 1], mostly one run: in each run the rows
// [offsets[e], offsets[e + 1]) belong to expert e, perhaps none, and a run begins where the one
// before it ends; middle [>= rows, intermediate] scratch of the activation type; y [rows,
// hidden] of the activation type (each row rounded) or fp32.   Errors: none; shapes are checked.
// Thread: engine; workers take (expert, panels).   Bits: equal in every body.
struct ExpertsCall {
  MatrixView x;
  std::span<const int32_t> offsets;
  std::span<const ExpertWeights> experts;
  int intermediate = 0;
  MatrixView middle;
  MatrixView y;
  Activation activation = {};
};
void run_experts(Backend& backend, const ExpertsCall& call);
// The two products of run_experts() by themselves: gate, up and activation to `middle`, and down
// from there to y. Rows may be computed first by the one, then in several calls by the other.
void run_gate_up(Backend& backend, const ExpertsCall& call);
void run_down(Backend& backend, const ExpertsCall& call);

}  // namespace hocket
