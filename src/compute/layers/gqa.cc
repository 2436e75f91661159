#include "compute/layers/gqa.h"

#include "compute/kernels/attention.h"
#include "compute/kernels/attention_gate.h"
#include "compute/kernels/linear.h"
#include "compute/kernels/norm.h"
#include "compute/kernels/qkv.h"
#include "compute/kernels/rope.h"

namespace hocket {
namespace {

int64_t columns_of(std::span<const PackedWeight> qkv) {
  int64_t n = 0;
  for (const PackedWeight& weight : qkv) n += weight.n;
  return n;
}

// Returns the columns of q, k and v of a half's rows, and of gates where the model has them.
View<float> qkv_of(const AttentionSite& site, const GqaWeights& weights, const Half& half) {
  return site.work.qkv.slice_rows(half.rows.begin, half.rows.count)
      .slice_cols(0, columns_of(weights.qkv));
}

View<float> head_gates_of(const AttentionSite& site, const GqaWeights& weights, const Half& half) {
  return site.work.head_gates.slice_rows(half.rows.begin, half.rows.count)
      .slice_cols(0, weights.head_gates.n);
}

}  // namespace

void gqa_in(const AttentionSite& site, const GqaWeights& weights, Half& half) {
  const auto [begin, count] = half.rows;
  WorkBuffers& work = site.work;
  const float eps = static_cast<float>(site.model.rms_norm_eps);
  const MatrixView normed = work.normed.slice_rows(begin, count);
  rms_norm(site.backend, work.residual.slice_rows(begin, count), weights.input_norm, eps, normed);
  const View<float> qkv = qkv_of(site, weights, half);
  int64_t column = 0;
  for (const PackedWeight& weight : weights.qkv) {
    linear(site.backend, normed, weight, qkv.slice_cols(column, weight.n));
    column += weight.n;
  }
  const bool over_heads = site.model.qk_norm_over_heads;
  if (over_heads) {
    const auto q_columns = std::ssize(weights.q_norm), k_columns = std::ssize(weights.k_norm);
    rms_norm_in_place(site.backend, qkv.slice_cols(0, q_columns), weights.q_norm, eps);
    rms_norm_in_place(site.backend, qkv.slice_cols(q_columns, k_columns), weights.k_norm, eps);
  }
  const AttentionConfig heads = site.model.attention(site.layer);
  const RopeConfig& rope = site.model.rope_of(site.layer);
  const bool local = site.model.is_local(site.layer);
  if (site.model.head_gates)
    linear(site.backend, normed, weights.head_gates, head_gates_of(site, weights, half));
  if (rope.query_beta > 0)
    scale_rows(site.backend, work.query_factors.slice_rows(begin, count),
               qkv.slice_cols(0, heads.num_heads * int64_t{heads.key_dim}));
  const MatrixView q = work.q.slice_rows(begin, count)
                           .first_cols(heads.num_heads * round_up(heads.key_dim, kBlockK));
  finish_qkv(site.backend, {.qkv = qkv,
                            .num_heads = heads.num_heads,
                            .query_step = site.model.query_columns(heads.key_dim),
                            .q_norm = over_heads ? std::span<const float>() : weights.q_norm,
                            .k_norm = over_heads ? std::span<const float>() : weights.k_norm,
                            .style = rope.style,
                            .norm_eps = eps,
                            .value_scale = static_cast<float>(site.model.value_scale),
                            .unit_norms = heads.unit_norms,
                            .value_norm = site.model.value_norm,
                            .cos = (local ? work.local_cos : work.cos).slice_rows(begin, count),
                            .sin = (local ? work.local_sin : work.sin).slice_rows(begin, count),
                            .slots = site.windowed ? half.window_slots : half.slots,
                            .q = q,
                            .kv = site.kv});
  half.state.q.set(q);
}

void gqa_core(const AttentionSite& site, const GqaWeights& weights, Half& half) {
  const auto [begin, count] = half.rows;
  const AttentionConfig heads = site.model.attention(site.layer);
  const MatrixView attended = site.work.attended.slice_rows(begin, count)
                                  .first_cols(heads.num_heads * int64_t{heads.value_dim});
  attention(site.backend, {.q = half.state.q.take(),
                           .kv = site.kv,
                           .plan = site.windowed ? half.window_attention : half.attention,
                           .scale = static_cast<float>(site.model.softmax_scale),
                           .visible = heads.visible,
                           .sinks = weights.sinks,
                           .out = attended});
  if (site.model.attention_gate) {
    const View<float> qkv = qkv_of(site, weights, half);
    gate_attention(site.backend, {.gates = qkv.slice_cols(heads.key_dim, qkv.cols - heads.key_dim),
                                  .num_heads = heads.num_heads,
                                  .dim = heads.key_dim,
                                  .step = site.model.query_columns(heads.key_dim),
                                  .x = attended});
  }
  if (site.model.head_gates) gate_heads(site.backend, head_gates_of(site, weights, half), attended);
  const View<float> residual = site.work.residual.slice_rows(begin, count);
  if (!site.model.result_norms)
    return linear(site.backend, attended, weights.output, residual, StoreMode::add);
  const View<float> result = site.work.results.slice_rows(begin, count);
  linear(site.backend, attended, weights.output, result);
  add_rms_norm(site.backend, result, weights.result_norm,
               static_cast<float>(site.model.rms_norm_eps), residual);
}

}  // namespace hocket
