#include "compute/moe/shared_experts.h"

#include <array>

#include "compute/kernels/attention_gate.h"
#include "compute/kernels/linear.h"

namespace hocket {

void shared_experts(Backend& backend, const ModelConfig& model, const SharedWeights& weights,
                    WorkBuffers& work, Half& half) {
  const auto [begin, count] = half.rows;
  const int intermediate = model.moe.shared_intermediate_size;
  const View<float> out = work.shared_out.slice_rows(begin, count);
  const std::array<int32_t, 2> offsets = {0, count};
  const MatrixView x = half.state.shared_x.take();
  run_experts(backend, {.x = x,
                        .offsets = offsets,
                        .experts = std::span(&weights.mlp, 1),
                        .intermediate = intermediate,
                        .middle = work.middle_rows(begin, count, intermediate),
                        .y = MatrixView::of(out),
                        .activation = weights.activation});
  if (model.moe.shared_gate) {
    const View<float> gates = work.shared_gates.slice_rows(begin, count);
    linear(backend, x, weights.gate, gates);
    sigmoid_rows(backend, gates, out);
  }
  half.state.shared_y.set(out);
}

}  // namespace hocket
