#include "compute/kernels/combine.h"

#include <algorithm>
#include <cstring>

#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {
namespace {

constexpr int kMaxSlots = 64;  // experts a token may choose

// The slots of one token in the order of their groups.
template <class T>
struct TokenSlots {
  const T* y[kMaxSlots];
  float weights[kMaxSlots];
  uint8_t closes[kMaxSlots];

  void gather(const CombineCall& call, const View<T>& rows, int64_t token) {
    const int group_size = call.num_experts / call.num_groups;
    const auto k = static_cast<int>(call.ids.cols);
    int order[kMaxSlots], group[kMaxSlots];
    for (int s = 0; s < k; ++s) {
      const int id = call.ids.row(token)[s];
      HOCKET_CHECK(id >= 0 && id < call.num_experts);
      int at = s;
      for (; at > 0 && group[at - 1] > id / group_size; --at) {
        group[at] = group[at - 1];
        order[at] = order[at - 1];
      }
      group[at] = id / group_size;
      order[at] = s;
    }
    for (int i = 0; i < k; ++i) {
      const int64_t row = call.position.row(token)[order[i]];
      HOCKET_CHECK(row >= 0 && row < rows.rows);
      y[i] = rows.row(row);
      weights[i] = call.weights.row(token)[order[i]];
      closes[i] = i + 1 == k || group[i + 1] != group[i];
    }
  }
};

}  // namespace

void gather_rows(Backend& backend, MatrixView x, std::span<const int32_t> rows, MatrixView out) {
  HOCKET_CHECK(x.dtype == out.dtype);
  HOCKET_CHECK(x.cols == out.cols);
  HOCKET_CHECK(static_cast<int64_t>(rows.size()) == out.rows);
  const int64_t size = size_of(x.dtype);
  const auto* const from = static_cast<const std::byte*>(x.data);
  auto* const to = static_cast<std::byte*>(out.data);
  for_row_ranges(backend, out.rows, out.cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      HOCKET_CHECK(rows[r] >= 0 && rows[r] < x.rows);
      std::memcpy(to + r * out.stride * size, from + rows[r] * x.stride * size, x.cols * size);
    }
  });
}

void combine_rows(Backend& backend, const CombineCall& call) {
  const int64_t tokens = call.residual.rows, k = call.ids.cols;
  HOCKET_CHECK(k >= 1 && k <= kMaxSlots);
  HOCKET_CHECK(call.ids.rows == tokens);
  HOCKET_CHECK(call.position.rows == tokens && call.position.cols == k);
  HOCKET_CHECK(call.weights.rows == tokens && call.weights.cols == k);
  HOCKET_CHECK(call.residual.cols == call.y.cols);
  if (call.shared.rows > 0)
    HOCKET_CHECK((call.shared.rows == tokens && call.shared.cols == call.residual.cols));
  HOCKET_CHECK(call.num_groups >= 1 && call.num_experts % call.num_groups == 0);
  with_dtype(call.y.dtype, [&](auto t) {
    using T = decltype(t);
    const View<T> rows = call.y.as<T>();
    const auto& kernels = backend.rows().of<T>();
    for_row_ranges(backend, tokens, rows.cols * k, [&](int64_t begin, int64_t end, int) {
      for (int64_t token = begin; token < end; ++token) {
        TokenSlots<T> slots;
        slots.gather(call, rows, token);
        kernels.combine({.y = slots.y,
                         .weights = slots.weights,
                         .closes = slots.closes,
                         .num_slots = static_cast<int>(k),
                         .cols = rows.cols,
                         .shared = call.shared.rows > 0 ? call.shared.row(token) : nullptr,
                         .residual = call.residual.row(token)});
      }
    });
  });
}

}  // namespace hocket
