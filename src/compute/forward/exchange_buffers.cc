#include "compute/forward/exchange_buffers.h"

namespace hocket {
namespace {

constexpr int kHalves = 2;

template <class T>
View<T> table(Layout& layout, int64_t rows, int64_t cols) {
  return {layout.array<T>(rows * cols), rows, cols};
}

}  // namespace

void ExchangeBuffers::lay_out(const Shape& of, Layout& layout) {
  shape = of;
  const auto& [num_ranks, rank_experts, max_decode_rows, max_parts] = of.limits;
  HOCKET_CHECK(max_decode_rows <= of.max_rows);
  const int64_t lists = int64_t{of.max_rows} * of.ranks_per_row();
  sent = layout.matrix(of.dtype, of.sent_rows(), of.row_columns);
  sent_from = layout.array<int32_t>(of.sent_rows());
  places = table<int32_t>(layout, of.max_rows, of.top_k);
  sent_ids = table<int32_t>(layout, lists, of.top_k);
  sent_weights = table<float>(layout, lists, of.top_k);
  sent_offsets =
      table<int32_t>(layout, int64_t{kHalves} * max_parts, of.num_places() + num_ranks + 1);
  heads = table<std::byte>(layout, int64_t{kHalves} * max_parts * num_ranks,
                           kMessageHeadBytes + dispatch_head_bytes(rank_experts));
  sources = layout.array<const std::byte*>(of.expert_rows());
  ids = table<int32_t>(layout, of.listed_rows(), of.top_k);
  first_sum = layout.array<int32_t>(of.listed_rows());
  position = table<int32_t>(layout, of.arriving_rows(), of.top_k);
  nodes = table<int32_t>(layout, of.arriving_rows(), of.top_k);
  weights = table<float>(layout, of.arriving_rows(), of.top_k);
  segments = table<int32_t>(layout, kHalves, int64_t{max_parts} * rank_experts * num_ranks + 1);
  expert_offsets = table<int32_t>(layout, kHalves, int64_t{max_parts} * (rank_experts + 1));
  results = layout.array<const std::byte*>(int64_t{of.max_rows} * of.top_k);
}

}  // namespace hocket
