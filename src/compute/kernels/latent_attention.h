// Multi-head latent attention over pages that hold one latent per token (kv_layout.h, kind latent).
// It has two forms (MlaForm). A row has one of them whatever its batch:
//
//   expanded, prompts   key of head h = [ round(key_up[h] . c) | rope part ], value of head h =
//                       round(value_up[h] . c); ordinary attention over them
//   absorbed, answers   q' = [ round(key_absorb[h] . q_nope), padded to 32 | q_rope, padded ];
//                       all heads attend to one key, the row as it lies in the page, whose first
//                       value_dim numbers are the value; y = round(o / l + 0);
//                       out = round(value_up[h] . y)
//
// Each dot is a canonical product; softmax blocks, segments and merging are those of attention.h.
// Source: docs/contracts/arithmetic.md, "latent attention".
#pragma once

#include <span>

#include "compute/kernels/attention.h"

namespace hocket {

// Matrices of a layer, one per head: [num_heads] each.
struct LatentHeads {
  std::span<const PackedWeight> key_up;      // n = nope_dim, k = kv_rank
  std::span<const PackedWeight> value_up;    // n = value_dim, k = kv_rank
  std::span<const PackedWeight> key_absorb;  // n = kv_rank, k = nope_dim: key_up transposed
};

// Shapes: q [rows, num_heads * round_up(nope_dim + rope_dim, 32)], a head's [nope | rope | zeros];
// q_absorbed [rows, num_heads * kv.shape.row_elements()] and y_absorbed [rows, num_heads *
// kv.shape.rope_offset()] are scratch for generated rows (they may have no rows if all rows are
// prompt rows); out [rows, num_heads * value_dim]. All have one type.
struct LatentAttentionCall {
  MatrixView q;
  KvLayer kv;
  const AttentionPlan& plan;
  float scale = 1;
  LatentHeads heads;
  int nope_dim = 0, rope_dim = 0, value_dim = 0;
  MatrixView q_absorbed, y_absorbed;
  MatrixView out;
};
// Errors: none; shapes are checked.   Thread: engine; workers take (task, head).
// Bits: equal in every body.
void latent_attention(Backend& backend, const LatentAttentionCall& call);
// latent_attention_scratch_bytes() returns the scratch bytes that one worker needs.
struct LatentShape {
  int num_heads = 0, nope_dim = 0, rope_dim = 0, value_dim = 0;
  KvShape kv;
  DType dtype = DType::bf16;  // type of activations
};
int64_t latent_attention_scratch_bytes(const LatentShape& shape);

}  // namespace hocket
