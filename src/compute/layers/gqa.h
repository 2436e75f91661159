// Grouped-query attention as two operations: in (norm, projections, rotation, storing keys and
// values) and core (attention, output projection, residual).
#pragma once

#include <span>
#include <vector>

#include "compute/forward/half.h"
#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/kernels/backend.h"
#include "compute/kernels/kv_layout.h"
#include "core/model_config.h"

namespace hocket {

struct GqaWeights {
  std::span<const float> input_norm;  // [hidden]
  // One below the other, apart where their formats differ, perhaps with bias; together n = heads *
  // key_dim + kv heads * (key_dim + value_dim). With ModelConfig::attention_gate each q head has
  // its key_dim gates behind it, so that n is larger by heads * key_dim.
  std::vector<PackedWeight> qkv;
  // [head_dim]; with ModelConfig::qk_norm_over_heads [heads * head_dim], [kv heads * head_dim]; or
  // empty.
  std::span<const float> q_norm, k_norm;
  std::span<const float> sinks;        // [heads]; or empty
  PackedWeight head_gates;             // n = heads; with ModelConfig::head_gates
  PackedWeight output;                 // k = heads * value_dim
  std::span<const float> result_norm;  // [hidden]; with ModelConfig::result_norms
};

// The objects that the attention of one layer works on, borrowed for the call.
struct AttentionContext {
  Backend& backend;
  const ModelConfig& model;
  WorkBuffers& work;
  const KvLayer& kv;
  int layer;
  bool windowed = false;  // its pages are those of window layers (Half::window_slots)
};

// Reads the residual rows of `half`, stores their keys and values, sets half.state.q.
void gqa_in(const AttentionContext& context, const GqaWeights& weights, Half& half);
// Takes half.state.q, adds the result, perhaps normed, to the residual rows of `half`. Gates are
// read from work.qkv, those of whole heads from work.head_gates.
void gqa_core(const AttentionContext& context, const GqaWeights& weights, Half& half);

}  // namespace hocket
