#include "compute/layers/gqa.h"

#include "compute/kernels/attention.h"
#include "compute/kernels/attention_gate.h"
#include "compute/kernels/linear.h"
#include "compute/kernels/norm.h"
#include "compute/kernels/rope.h"
#include "compute/kernels/store_kv.h"

namespace hocket {
namespace {

int64_t columns_of(std::span<const PackedWeight> qkv) {
  int64_t n = 0;
  for (const PackedWeight& weight : qkv) n += weight.n;
  return n;
}

// Returns the columns of q, k and v of a half's rows, and of gates where the model has them.
View<float> qkv_of(const AttentionContext& context, const GqaWeights& weights, const Half& half) {
  return context.work.qkv.slice_rows(half.rows.begin, half.rows.count)
      .slice_cols(0, columns_of(weights.qkv));
}

View<float> head_gates_of(const AttentionContext& context, const GqaWeights& weights,
                          const Half& half) {
  return context.work.head_gates.slice_rows(half.rows.begin, half.rows.count)
      .slice_cols(0, weights.head_gates.n);
}

}  // namespace

void gqa_in(const AttentionContext& context, const GqaWeights& weights, Half& half) {
  const auto [begin, count] = half.rows;
  WorkBuffers& work = context.work;
  const float eps = static_cast<float>(context.model.rms_norm_eps);
  const MatrixView normed = work.normed.slice_rows(begin, count);
  rms_norm(context.backend, work.residual.slice_rows(begin, count), weights.input_norm, eps,
           normed);
  const View<float> qkv = qkv_of(context, weights, half);
  int64_t column = 0;
  for (const PackedWeight& weight : weights.qkv) {
    linear(context.backend, normed, weight, qkv.slice_cols(column, weight.n));
    column += weight.n;
  }
  const bool over_heads = context.model.qk_norm_over_heads;
  if (over_heads) {
    const auto q_columns = std::ssize(weights.q_norm), k_columns = std::ssize(weights.k_norm);
    rms_norm_in_place(context.backend, qkv.slice_cols(0, q_columns), weights.q_norm, eps);
    rms_norm_in_place(context.backend, qkv.slice_cols(q_columns, k_columns), weights.k_norm, eps);
  }
  const AttentionConfig heads = context.model.attention(context.layer);
  const RopeConfig& rope = context.model.rope_of(context.layer);
  const bool local = context.model.is_local(context.layer);
  if (context.model.head_gates)
    linear(context.backend, normed, weights.head_gates, head_gates_of(context, weights, half));
  if (rope.query_beta > 0)
    scale_rows(context.backend, work.query_factors.slice_rows(begin, count),
               qkv.slice_cols(0, heads.num_heads * int64_t{heads.key_dim}));
  const MatrixView q = work.q.slice_rows(begin, count)
                           .first_cols(heads.num_heads * round_up(heads.key_dim, kBlockK));
  store_kv(context.backend, {.qkv = qkv,
                             .num_heads = heads.num_heads,
                             .query_step = context.model.query_columns(heads.key_dim),
                             .q_norm = over_heads ? std::span<const float>() : weights.q_norm,
                             .k_norm = over_heads ? std::span<const float>() : weights.k_norm,
                             .style = rope.style,
                             .norm_eps = eps,
                             .value_scale = static_cast<float>(context.model.value_scale),
                             .unit_norms = heads.unit_norms,
                             .value_norm = context.model.value_norm,
                             .cos = (local ? work.local_cos : work.cos).slice_rows(begin, count),
                             .sin = (local ? work.local_sin : work.sin).slice_rows(begin, count),
                             .slots = context.windowed ? half.window_slots : half.slots,
                             .q = q,
                             .kv = context.kv});
  half.state.q.set(q);
}

void gqa_core(const AttentionContext& context, const GqaWeights& weights, Half& half) {
  const auto [begin, count] = half.rows;
  const AttentionConfig heads = context.model.attention(context.layer);
  const MatrixView attended = context.work.attended.slice_rows(begin, count)
                                  .first_cols(heads.num_heads * int64_t{heads.value_dim});
  attention(context.backend, {.q = half.state.q.take(),
                              .kv = context.kv,
                              .plan = context.windowed ? half.window_attention : half.attention,
                              .scale = static_cast<float>(context.model.softmax_scale),
                              .visible = heads.visible,
                              .sinks = weights.sinks,
                              .out = attended});
  if (context.model.attention_gate) {
    const View<float> qkv = qkv_of(context, weights, half);
    gate_attention(context.backend,
                   {.gates = qkv.slice_cols(heads.key_dim, qkv.cols - heads.key_dim),
                    .num_heads = heads.num_heads,
                    .dim = heads.key_dim,
                    .step = context.model.query_columns(heads.key_dim),
                    .x = attended});
  }
  if (context.model.head_gates)
    gate_heads(context.backend, head_gates_of(context, weights, half), attended);
  const View<float> residual = context.work.residual.slice_rows(begin, count);
  if (!context.model.result_norms)
    return linear(context.backend, attended, weights.output, residual, StoreMode::add);
  const View<float> result = context.work.results.slice_rows(begin, count);
  linear(context.backend, attended, weights.output, result);
  add_rms_norm(context.backend, result, weights.result_norm,
               static_cast<float>(context.model.rms_norm_eps), residual);
}

}  // namespace hocket
