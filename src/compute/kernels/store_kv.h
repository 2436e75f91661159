// Turns the fp32 projections of a layer into the inputs of attention: norms each head of q and k
// (if the model does), rotates it, rounds once; then stores k and v into their pages, in int8 pages
// with one scale per token and head (kv_layout.h), and writes q for attention(). Some models norm
// after the rotation.
#pragma once

#include <span>

#include "compute/kernels/backend.h"
#include "compute/kernels/kv_layout.h"
#include "core/model_config.h"

namespace hocket {

// Shapes: qkv [rows, num_heads * query_step + kv_heads * (head_dim + value_dim)] fp32, q heads,
// then k, then v; a q head has its first head_dim columns for the query; norms [head_dim] or empty;
// cos, sin [rows, rotary_dim / 2], perhaps of no columns; slots [rows]; q, the output, [rows,
// num_heads * round_up(head_dim, 32)], heads padded with zeros, of the type of the pages unless
// they hold int8.
struct StoreKvCall {
  View<const float> qkv;
  int num_heads = 0;
  int query_step = 0;  // columns from one q head to the next; 0: head_dim
  std::span<const float> q_norm, k_norm;
  RopeConfig::Style style{};
  float norm_eps = 0;
  float value_scale = 1;    // multiplies v before it is rounded
  bool unit_norms = false;  // q and k are normed after the rotation, with weights of 1
  bool value_norm = false;  // v is normed with weights of 1, before its scale
  View<const float> cos, sin;
  std::span<const KvSlot> slots;
  MatrixView q;
  KvLayer kv;
};
// Errors: none; shapes are checked.   Thread: engine; workers split rows.
void store_kv(Backend& backend, const StoreKvCall& call);

}  // namespace hocket
