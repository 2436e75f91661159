#include "compute/moe/local_dispatcher.h"

#include <algorithm>

#include "compute/kernels/combine.h"
#include "compute/kernels/quantized_rows.h"

namespace hocket {

LocalDispatcher::LocalDispatcher(const ModelConfig& model, int combine_groups)
    : num_experts_(model.moe.num_experts),
      top_k_(model.moe.top_k),
      leaves_(combine_leaves(num_experts_, num_experts_ == 0 ? 1 : combine_groups)),
      output_scale_(static_cast<float>(model.moe.output_scale)) {}

void LocalDispatcher::dispatch_start(const ExchangeContext& context, Half& half) {
  WorkBuffers& work = context.work;
  const auto [begin, count] = half.rows;
  const Routing& routing = half.state.routing.peek();
  const View<int32_t> position = work.expert_position.slice_rows(begin, count);
  const std::span<int32_t> offsets(work.expert_offsets + half.index * (num_experts_ + 1),
                                   num_experts_ + 1);
  const std::span<int32_t> rows(work.sorted_rows + int64_t{begin} * top_k_,
                                int64_t{count} * top_k_);

  // Sorts by expert in three passes: counts, then starts, then places.
  std::ranges::fill(offsets, 0);
  for (int64_t t = 0; t < count; ++t)
    for (int s = 0; s < top_k_; ++s) ++offsets[routing.ids.row(t)[s] + 1];
  for (int e = 0; e < num_experts_; ++e) offsets[e + 1] += offsets[e];
  for (int64_t t = 0; t < count; ++t)
    for (int s = 0; s < top_k_; ++s) {
      const int32_t place = offsets[routing.ids.row(t)[s]]++;
      position.row(t)[s] = place;
      rows[place] = static_cast<int32_t>(t);
    }
  // The third pass moved every start to its end, which is the next expert's start.
  for (int e = num_experts_; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;

  const int64_t first = int64_t{begin} * top_k_;
  const ExpertRows sorted = {.x = work.expert_x.slice_rows(first, std::ssize(rows)),
                             .y = work.expert_y.slice_rows(first, std::ssize(rows)),
                             .offsets = offsets,
                             .position = position};
  const MatrixView normed = half.state.normed.take();
  if (work.limits.int8_dispatch) {
    const MatrixView leaving = work.leaving.slice_rows(begin, count);
    quantize_rows(context.backend, normed, leaving);
    dequantize_rows(context.backend, leaving, rows, sorted.x);
  } else {
    gather_rows(context.backend, normed, rows, sorted.x);
  }
  half.state.dispatched.set(sorted);
}

void LocalDispatcher::dispatch_wait(const ExchangeContext&, Half& half) {
  half.state.arrived.set(half.state.dispatched.take());
}

void LocalDispatcher::combine_start(const ExchangeContext&, Half& half) {
  half.state.combining.set(half.state.computed.take());
}

void LocalDispatcher::combine_wait(const ExchangeContext& context, Half& half) {
  const ExpertRows rows = half.state.combining.take();
  const Routing routing = half.state.routing.take();
  const View<float> shared =
      half.state.shared_y.empty() ? View<float>() : half.state.shared_y.take();
  combine_rows(context.backend,
               {.y = rows.y,
                .ids = routing.ids,
                .position = rows.position,
                .weights = routing.weights,
                .leaves = leaves_,
                .output_scale = output_scale_,
                .shared = shared,
                .residual = context.work.results.slice_rows(half.rows.begin, half.rows.count),
                .int8_sums = context.work.limits.int8_combine});
}

}  // namespace hocket
