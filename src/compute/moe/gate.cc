#include "compute/moe/gate.h"

#include "compute/kernels/linear.h"
#include "compute/kernels/norm.h"
#include "compute/kernels/router.h"
#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {

void gate(Backend& backend, const ModelConfig& model, const GateWeights& weights, WorkBuffers& work,
          Half& half) {
  const auto [begin, count] = half.rows;
  const MatrixView normed = work.normed.slice_rows(begin, count);
  const auto norm = [&](std::span<const float> w, MatrixView to) {
    rms_norm(backend, work.residual.slice_rows(begin, count), w,
             static_cast<float>(model.rms_norm_eps), to);
  };
  norm(model.result_norms ? weights.gate_norm : weights.norm, normed);
  const Routing routing = {.ids = work.expert_ids.slice_rows(begin, count),
                           .weights = work.expert_weights.slice_rows(begin, count),
                           .logits = work.gate_logits.slice_rows(begin, count)};
  linear(backend, normed, weights.gate, routing.logits);
  if (model.moe.logit_scale != 1)
    for_row_ranges(backend, count, routing.logits.cols, [&](int64_t first, int64_t end, int) {
      for (int64_t r = first; r < end; ++r)
        backend.rows().scale(static_cast<float>(model.moe.logit_scale), routing.logits.cols,
                             routing.logits.row(r));
    });
  select_experts(backend, {.logits = routing.logits,
                           .bias = weights.bias,
                           .scales = weights.scales,
                           .moe = model.moe,
                           .ids = routing.ids,
                           .weights = routing.weights});
  MatrixView shared = normed;
  if (model.result_norms) {
    norm(weights.norm, normed);
    shared = work.shared_normed.slice_rows(begin, count);
    norm(weights.shared_norm, shared);
  }
  half.state.normed.set(normed);
  if (model.moe.shared_intermediate_size > 0) half.state.shared_x.set(shared);
  half.state.routing.set(routing);
}

void weigh_inputs(Backend& backend, WorkBuffers& work, Half& half) {
  const View<float> weights = half.state.routing.peek().weights;
  const MatrixView normed = half.state.normed.take();
  const MatrixView weighted = work.weighted.slice_rows(half.rows.begin, half.rows.count);
  with_dtype(normed.dtype, [&](auto t) {
    using T = decltype(t);
    const View<T> from = normed.as<T>(), to = weighted.as<T>();
    for_row_ranges(backend, from.rows, from.cols, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        backend.rows().of<T>().multiply(from.row(r), *weights.row(r), from.cols, to.row(r));
        *weights.row(r) = 1;
      }
    });
  });
  half.state.normed.set(weighted);
}

void count_choices(View<const int32_t> ids, std::span<uint32_t> counts) {
  for (int64_t t = 0; t < ids.rows; ++t)
    for (int64_t s = 0; s < ids.cols; ++s) ++counts[static_cast<size_t>(ids.row(t)[s])];
}

}  // namespace hocket
