#include "compute/layers/mlp.h"

#include <array>

#include "compute/kernels/norm.h"

namespace hocket {

void dense_mlp(Backend& backend, const MlpWeights& weights, float eps, WorkBuffers& work,
               const Half& half) {
  const auto [begin, count] = half.rows;
  const View<float> residual = work.residual.slice_rows(begin, count);
  const MatrixView normed = work.normed.slice_rows(begin, count);
  const View<float> out = work.mlp_out.slice_rows(begin, count);
  rms_norm(backend, residual, weights.norm, eps, normed);
  const std::array<int32_t, 2> offsets = {0, count};
  run_experts(backend, {.x = normed,
                        .offsets = offsets,
                        .experts = std::span(&weights.mlp, 1),
                        .intermediate = weights.intermediate,
                        .middle = work.middle_rows(begin, count, weights.intermediate),
                        .y = MatrixView::of(out)});
  backend.workers().run(count, [&](int row, int) {
    float* to = residual.row(row);
    const float* from = out.row(row);
    for (int64_t i = 0; i < out.cols; ++i) to[i] += from[i];
  });
}

}  // namespace hocket
