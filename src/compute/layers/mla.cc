#include "compute/layers/mla.h"

#include "compute/kernels/latent_attention.h"
#include "compute/kernels/linear.h"
#include "compute/kernels/norm.h"
#include "compute/kernels/rope.h"
#include "compute/kernels/store_latent_kv.h"

namespace hocket {

void mla_in(const AttentionContext& context, const MlaWeights& weights, Half& half) {
  const auto [begin, count] = half.rows;
  const ModelConfig& model = context.model;
  const MlaConfig& mla = model.mla;
  WorkBuffers& work = context.work;
  const MatrixView normed = work.normed.slice_rows(begin, count);
  rms_norm(context.backend, work.residual.slice_rows(begin, count), weights.input_norm,
           static_cast<float>(model.rms_norm_eps), normed);
  const View<float> down = work.qkv.slice_rows(begin, count).slice_cols(0, weights.down.n);
  linear(context.backend, normed, weights.down, down);

  const int latent_columns = mla.kv_rank + mla.rope_dim;
  const int64_t q_columns = down.cols - latent_columns;
  View<float> q_heads = down.slice_cols(0, q_columns);
  if (mla.q_rank > 0) {
    const MatrixView q_latent = work.q_latent.slice_rows(begin, count);
    rms_norm(context.backend, q_heads, weights.q_norm, static_cast<float>(mla.norm_eps), q_latent);
    q_heads = work.q_heads.slice_rows(begin, count);
    linear(context.backend, q_latent, weights.q_up, q_heads);
  }
  if (model.rope.query_beta > 0)
    scale_rows(context.backend, work.query_factors.slice_rows(begin, count), q_heads);
  const MatrixView q = work.q.slice_rows(begin, count);
  store_latent_kv(context.backend, {.q = q_heads,
                                    .latent = down.slice_cols(q_columns, latent_columns),
                                    .num_heads = model.num_heads,
                                    .nope_dim = mla.nope_dim,
                                    .kv_norm = weights.kv_norm,
                                    .norm_eps = static_cast<float>(mla.norm_eps),
                                    .style = model.rope.style,
                                    .cos = work.cos.slice_rows(begin, count),
                                    .sin = work.sin.slice_rows(begin, count),
                                    .slots = half.slots,
                                    .q_out = q,
                                    .kv = context.kv});
  half.state.q.set(q);
}

void mla_core(const AttentionContext& context, const MlaWeights& weights, Half& half) {
  const auto [begin, count] = half.rows;
  const MlaConfig& mla = context.model.mla;
  WorkBuffers& work = context.work;
  const MatrixView attended = work.attended.slice_rows(begin, count);
  latent_attention(context.backend, {.q = half.state.q.take(),
                                     .kv = context.kv,
                                     .plan = half.attention,
                                     .scale = static_cast<float>(context.model.softmax_scale),
                                     .heads = {weights.heads.key_up, weights.heads.value_up,
                                               weights.heads.key_absorb},
                                     .nope_dim = mla.nope_dim,
                                     .rope_dim = mla.rope_dim,
                                     .value_dim = mla.value_dim,
                                     .q_absorbed = work.q_absorbed.slice_rows(begin, count),
                                     .y_absorbed = work.y_absorbed.slice_rows(begin, count),
                                     .out = attended});
  linear(context.backend, attended, weights.output, work.residual.slice_rows(begin, count),
         StoreMode::add);
}

}  // namespace hocket
