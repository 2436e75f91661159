#include "compute/layers/gated_delta.h"

#include "compute/kernels/delta_net.h"
#include "compute/kernels/linear.h"
#include "compute/kernels/norm.h"
#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"
#include "compute/overlap/executor.h"

namespace hocket {
namespace {

void round_rows(Backend& backend, View<const float> from, MatrixView to) {
  with_dtype(to.dtype, [&](auto t) {
    using T = decltype(t);
    const View<T> rounded = to.as<T>();
    for_row_ranges(backend, from.rows, from.cols, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r)
        backend.rows().of<T>().round(from.row(r), from.cols, rounded.row(r));
    });
  });
}

// Projects the normed rows to the decays of channels and to b, which are in work.delta_gates, and
// to z behind the channels. The rows of key_dim numbers between the products are rounded.
void project_channel_gates(const DeltaContext& context, const GatedDeltaWeights& weights,
                           const Half& half, MatrixView normed) {
  const auto [begin, count] = half.rows;
  const DeltaNetConfig& net = context.model.delta_net;
  const WorkBuffers& work = context.work;
  const View<float> gates = work.delta_gates.slice_rows(begin, count);
  linear(context.backend, normed, weights.gates,
         gates.slice_cols(net.key_columns(), weights.gates.n));
  const auto up = [&](int part, const PackedWeight& weight, View<float> to) {
    const MatrixView narrow = work.delta_narrow.slice_rows(begin, count);
    round_rows(context.backend,
               gates.slice_cols(net.gate_columns() + part * net.key_dim, net.key_dim), narrow);
    linear(context.backend, narrow, weight, to);
  };
  up(0, weights.decay_up, gates.slice_cols(0, net.key_columns()));
  up(1, weights.z_up,
     work.qkv.slice_rows(begin, count).slice_cols(net.channels(), net.value_columns()));
}

}  // namespace

void gated_delta_in(const DeltaContext& context, const GatedDeltaWeights& weights, Half& half) {
  const auto [begin, count] = half.rows;
  WorkBuffers& work = context.work;
  const MatrixView normed = work.normed.slice_rows(begin, count);
  rms_norm(context.backend, work.residual.slice_rows(begin, count), weights.input_norm,
           static_cast<float>(context.model.rms_norm_eps), normed);
  linear(context.backend, normed, weights.in,
         work.qkv.slice_rows(begin, count).slice_cols(0, weights.in.n));
  if (context.model.delta_net.channel_decay) {
    project_channel_gates(context, weights, half, normed);
  } else {
    linear(context.backend, normed, weights.gates, work.delta_gates.slice_rows(begin, count));
  }
}

void gated_delta_core(const DeltaContext& context, const GatedDeltaWeights& weights, Half& half) {
  const auto [begin, count] = half.rows;
  WorkBuffers& work = context.work;
  const DeltaNetConfig& net = context.model.delta_net;
  const MatrixView out = work.delta_out.slice_rows(begin, count);
  delta_net(
      context.backend,
      {.x = work.qkv.slice_rows(begin, count).slice_cols(0, net.channels() + net.value_columns()),
       .gates = work.delta_gates.slice_rows(begin, count).slice_cols(0, net.gate_columns()),
       .taps = weights.taps,
       .a_log = weights.a_log,
       .dt_bias = weights.dt_bias,
       .norm = weights.norm,
       .norm_eps = static_cast<float>(context.model.rms_norm_eps),
       .layer = context.states,
       .sequences = half.delta,
       .out = out});
  if (context.probe != nullptr) context.probe->after_delta_net();
  linear(context.backend, out, weights.output, work.residual.slice_rows(begin, count),
         StoreMode::add);
}

}  // namespace hocket
