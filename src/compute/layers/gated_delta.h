// A gated delta net as two operations, like those of attention: in (norm, projections) and core
// (convolution, the net itself, output projection, residual). core changes the states of its
// sequences, so the rows of a sequence must pass through it in their order.
#pragma once

#include <span>

#include "compute/forward/half.h"
#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/kernels/backend.h"
#include "compute/kernels/delta_state.h"
#include "core/model_config.h"

namespace hocket {

class ForwardProbe;

struct GatedDeltaWeights {
  std::span<const float> input_norm;  // [hidden]
  PackedWeight in;     // n = channels + value_columns: q, k, v, z; with channel_decay without z
  PackedWeight gates;  // n = 2 * value heads: b, a; with channel_decay value heads + 2 * key_dim:
                       // b, and the inputs of decay_up and z_up
  // With channel_decay the second products (f_b, g_b) of the low-rank pairs that give a and z: n =
  // key columns, value columns; k = key_dim.
  PackedWeight decay_up, z_up;
  std::span<const float> taps;     // [4][channels]
  std::span<const float> a_log;    // [value heads]
  std::span<const float> dt_bias;  // [value heads], with channel_decay [key columns]
  std::span<const float> norm;     // [value_dim]
  PackedWeight output;             // k = value_columns
};

// The objects that the delta net of one layer works on, borrowed for the call.
struct DeltaContext {
  Backend& backend;
  const ModelConfig& model;
  WorkBuffers& work;
  const DeltaLayer& states;
  ForwardProbe* probe = nullptr;  // called when the net is computed; may be null
};

// Reads the residual rows of `half`, and leaves their projections in work.qkv and work.delta_gates.
void gated_delta_in(const DeltaContext& context, const GatedDeltaWeights& weights, Half& half);
// Adds the result to the residual rows of `half`, and updates the states of half.delta.
void gated_delta_core(const DeltaContext& context, const GatedDeltaWeights& weights, Half& half);

}  // namespace hocket
