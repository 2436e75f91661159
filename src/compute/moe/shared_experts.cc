#include "compute/moe/shared_experts.h"

#include <array>

namespace hocket {

void shared_experts(Backend& backend, const ModelConfig& model, const ExpertWeights& weights,
                    WorkBuffers& work, Half& half) {
  const auto [begin, count] = half.rows;
  const int intermediate = model.moe.shared_intermediate_size;
  const View<float> out = work.shared_out.slice_rows(begin, count);
  const std::array<int32_t, 2> offsets = {0, count};
  run_experts(backend, {.x = half.state.shared_x.take(),
                        .offsets = offsets,
                        .experts = std::span(&weights, 1),
                        .intermediate = intermediate,
                        .middle = work.middle_rows(begin, count, intermediate),
                        .y = MatrixView::of(out)});
  half.state.shared_y.set(out);
}

}  // namespace hocket
