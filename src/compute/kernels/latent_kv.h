// From the fp32 projections of a latent-attention layer to what attention reads: the latent's norm,
// the rotation of the shared key part and of each head's query part, one rounding; the latent row
// is stored into its page. In int8 pages c and the key part are one group each of QuantizeRow, of
// their fp32 numbers, and the rounding falls away.
#pragma once

#include <span>

#include "compute/kernels/backend.h"
#include "compute/kernels/kv_layout.h"
#include "core/model_config.h"

namespace hocket {

// Shapes: q [rows, num_heads * (nope_dim + rope_dim)] fp32; latent [rows, kv_rank + rope_dim] fp32,
// c before its norm, then the key part before its rotation; kv_norm [kv_rank]; cos, sin [rows,
// rope_dim / 2]; slots [rows], each its own; q_out [rows, num_heads * round_up(nope_dim + rope_dim,
// 32)], heads padded with zeros, of the type of the pages unless they hold int8; kv of kind latent.
struct LatentKvCall {
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
void finish_latent(Backend& backend, const LatentKvCall& call);

}  // namespace hocket
