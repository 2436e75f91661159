// Turns the fp32 projections of a latent-attention layer into the inputs of attention: norms the
// latent, rotates the shared key part and each head's query part, rounds once, and stores the
// latent row into its page. In int8 pages, c and the key part are quantized straight from fp32, one
// QuantizeRow group each, without that rounding.
#pragma once

#include <span>

#include "compute/kernels/backend.h"
#include "compute/kernels/kv_layout.h"
#include "core/model_config.h"

namespace hocket {

// Shapes: q [rows, num_heads * (nope_dim + rope_dim)] fp32; latent [rows, kv_rank + rope_dim] fp32,
// with c before its norm, then the key part before its rotation; kv_norm [kv_rank]; cos, sin [rows,
// rope_dim / 2], or of no columns: nothing is rotated; slots [rows], all different; q_out [rows,
// num_heads * round_up(nope_dim + rope_dim, 32)], heads padded with zeros, of the type of the pages
// unless they hold int8; kv of kind latent.
struct StoreLatentKvCall {
  View<const float> q, latent;
  int num_heads = 0, nope_dim = 0;
  std::span<const float> kv_norm;
  float norm_eps = 0;
  RopeConfig::Style style{};
  View<const float> cos, sin;
  std::span<const KvSlot> slots;
  MatrixView q_out;
  KvLayer kv;
};
// Errors: none; shapes are checked.   Thread: engine; workers split rows.
void store_latent_kv(Backend& backend, const StoreLatentKvCall& call);

}  // namespace hocket
