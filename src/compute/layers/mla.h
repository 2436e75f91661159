// Multi-head latent attention as two operations: in (norm, projections, rotation, storing the
// latents) and core (attention, output projection, residual). Keys and values of a token are one
// latent row in its page (kernels/kv_layout.h); prompt and generated tokens attend in different
// forms (kernels/latent_attention.h).
#pragma once

#include <span>

#include "compute/layers/gqa.h"
#include "compute/weights/loader.h"

namespace hocket {

// `down` holds the query's part first (q_rank columns, or all heads if queries have no rank), then
// the latent and the key part that all heads share.
struct MlaWeights {
  std::span<const float> input_norm;  // [hidden]
  PackedWeight down;                  // n = qkv_columns(model)
  std::span<const float> q_norm;      // [q_rank], or empty
  PackedWeight q_up;                  // n = heads * head_dim, k = q_rank; empty without a rank
  std::span<const float> kv_norm;     // [kv_rank]
  LatentHeadWeights heads;  // products that make each head's keys and values from the latent
  PackedWeight output;      // k = heads * value_dim
};

// Reads the residual rows of `half`, stores their latents, sets half.state.q.
void mla_in(const AttentionContext& context, const MlaWeights& weights, Half& half);
// Takes half.state.q, adds the result to the residual rows of `half`.
void mla_core(const AttentionContext& context, const MlaWeights& weights, Half& half);

}  // namespace hocket
