#include "engine/stats/routed_rows.h"

#include <algorithm>

namespace hocket {

void RoutedRows::open(int num_rows, int num_layers, int top_k) {
  num_layers_ = num_layers, top_k_ = top_k;
  ids_.assign(ids_of(num_rows), 0);
}

void RoutedRows::after(int layer, Op op, const Half& half) {
  if (op != Op::gate) return;
  const View<int32_t> chosen = half.state.routing.peek().ids;
  for (int row = 0; row < half.rows.count; ++row) {
    const size_t at =
        ids_of(half.rows.begin + row) + static_cast<size_t>(layer) * static_cast<size_t>(top_k_);
    std::transform(chosen.row(row), chosen.row(row) + top_k_, &ids_[at],
                   [](int32_t id) { return static_cast<uint16_t>(id); });
  }
}

std::span<const uint16_t> RoutedRows::rows(int begin, int count) const {
  return std::span(ids_).subspan(ids_of(begin), ids_of(count));
}

}  // namespace hocket
