#include "compute/layers/gated_delta.h"

#include "compute/kernels/delta_net.h"
#include "compute/kernels/linear.h"
#include "compute/kernels/norm.h"

namespace hocket {

void gated_delta_in(const DeltaSite& site, const GatedDeltaWeights& weights, Half& half) {
  const auto [begin, count] = half.rows;
  WorkBuffers& work = site.work;
  const MatrixView normed = work.normed.slice_rows(begin, count);
  rms_norm(site.backend, work.residual.slice_rows(begin, count), weights.input_norm,
           static_cast<float>(site.model.rms_norm_eps), normed);
  linear(site.backend, normed, weights.in,
         work.qkv.slice_rows(begin, count).slice_cols(0, weights.in.n));
  linear(site.backend, normed, weights.gates, work.delta_gates.slice_rows(begin, count));
}

void gated_delta_core(const DeltaSite& site, const GatedDeltaWeights& weights, Half& half) {
  const auto [begin, count] = half.rows;
  WorkBuffers& work = site.work;
  const MatrixView out = work.delta_out.slice_rows(begin, count);
  delta_net(site.backend, {.x = work.qkv.slice_rows(begin, count).slice_cols(0, weights.in.n),
                           .gates = work.delta_gates.slice_rows(begin, count),
                           .taps = weights.taps,
                           .a_log = weights.a_log,
                           .dt_bias = weights.dt_bias,
                           .norm = weights.norm,
                           .norm_eps = static_cast<float>(site.model.rms_norm_eps),
                           .layer = site.states,
                           .sequences = half.delta,
                           .out = out});
  linear(site.backend, out, weights.output, work.residual.slice_rows(begin, count), Store::add);
}

}  // namespace hocket
