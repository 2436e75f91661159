#include "compute/kernels/combine.h"

#include <algorithm>
#include <cstring>

#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {
namespace {

// The slots of one token, sorted by group; within a group they keep the order of add().
template <class T>
struct TokenSlots {
  const T* y[kMaxSlots];
  float weights[kMaxSlots];
  uint8_t closes[kMaxSlots];
  int group[kMaxSlots];
  int count = 0;

  void add(int of_group, const T* row, float weight) {
    int at = count++;
    for (; at > 0 && group[at - 1] > of_group; --at) {
      group[at] = group[at - 1];
      y[at] = y[at - 1];
      weights[at] = weights[at - 1];
    }
    group[at] = of_group;
    y[at] = row;
    weights[at] = weight;
  }
  void close() {
    for (int i = 0; i < count; ++i) closes[i] = i + 1 == count || group[i + 1] != group[i];
  }
  // Returns a row that adds slots [begin, end) to `to`.
  CombineRow<T> row(int begin, int end, int64_t cols, float* to) const {
    return {.y = y + begin,
            .weights = weights + begin,
            .closes = closes + begin,
            .num_slots = end - begin,
            .cols = cols,
            .residual = to};
  }
};

template <class T>
const T* row_at(const View<T>& rows, int64_t row) {
  HOCKET_CHECK(row >= 0 && row < rows.rows);
  return rows.row(row);
}

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

void gather_rows(Backend& backend, std::span<const std::byte* const> rows, MatrixView out) {
  HOCKET_CHECK(static_cast<int64_t>(rows.size()) == out.rows);
  const int64_t size = size_of(out.dtype);
  auto* const to = static_cast<std::byte*>(out.data);
  for_row_ranges(backend, out.rows, out.cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      std::memcpy(to + r * out.stride * size, rows[r], out.cols * size);
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
  const int group_size = call.num_experts / call.num_groups;
  with_dtype(call.y.dtype, [&](auto t) {
    using T = decltype(t);
    const View<T> rows = call.y.as<T>();
    const auto& kernels = backend.rows().of<T>();
    for_row_ranges(backend, tokens, rows.cols * k, [&](int64_t begin, int64_t end, int) {
      for (int64_t token = begin; token < end; ++token) {
        TokenSlots<T> slots;
        for (int64_t s = 0; s < k; ++s) {
          const int id = call.ids.row(token)[s];
          HOCKET_CHECK(id >= 0 && id < call.num_experts);
          slots.add(id / group_size, row_at(rows, call.position.row(token)[s]),
                    call.weights.row(token)[s]);
        }
        slots.close();
        CombineRow<T> row = slots.row(0, slots.count, rows.cols, call.residual.row(token));
        row.scale = call.output_scale;
        if (call.shared.rows > 0) row.shared = call.shared.row(token);
        kernels.combine(row);
      }
    });
  });
}

void combine_partly(Backend& backend, const PartialCombineCall& call) {
  const int64_t tokens = call.ids.rows, k = call.ids.cols, cols = call.y.cols;
  HOCKET_CHECK(k >= 1 && k <= kMaxSlots);
  HOCKET_CHECK(call.position.rows == tokens && call.position.cols == k);
  HOCKET_CHECK(call.weights.rows == tokens && call.weights.cols == k);
  HOCKET_CHECK(std::ssize(call.first) == tokens);
  HOCKET_CHECK(call.out.cols == cols);
  HOCKET_CHECK(call.group_size >= 1);
  with_dtype(call.y.dtype, [&](auto t) {
    using T = decltype(t);
    const View<T> rows = call.y.as<T>(), out = call.out.as<T>();
    const auto& kernels = backend.rows().of<T>();
    for_row_ranges(backend, tokens, cols * k, [&](int64_t begin, int64_t end, int worker) {
      // The sum of one group starts from a row of +0. A sum that begins at +0 is never -0, so this
      // changes at most the sign of a zero, which the next addition would remove.
      float* const sum = backend.scratch<float>(worker, cols);
      for (int64_t token = begin; token < end; ++token) {
        TokenSlots<T> slots;
        for (int64_t s = 0; s < k; ++s)
          if (const int id = call.ids.row(token)[s]; id >= 0)
            slots.add(id / call.group_size, row_at(rows, call.position.row(token)[s]),
                      call.weights.row(token)[s]);
        slots.close();
        int64_t part = call.first[token];
        for (int first = 0, s = 0; s < slots.count; ++s) {
          if (!slots.closes[s]) continue;
          std::fill_n(sum, cols, 0.0f);
          kernels.combine(slots.row(first, s + 1, cols, sum));
          HOCKET_CHECK(part >= 0 && part < out.rows);
          kernels.round(sum, cols, out.row(part++));
          first = s + 1;
        }
      }
    });
  });
}

void combine_placed(Backend& backend, const PlacedCombineCall& call) {
  const int64_t tokens = call.residual.rows, k = call.ids.cols, cols = call.residual.cols;
  HOCKET_CHECK(k >= 1 && k <= kMaxSlots);
  HOCKET_CHECK(call.ids.rows == tokens);
  HOCKET_CHECK(call.rows.rows == tokens && call.rows.cols == k);
  if (call.weights.rows > 0) HOCKET_CHECK((call.weights.rows == tokens && call.weights.cols == k));
  if (call.shared.rows > 0) HOCKET_CHECK((call.shared.rows == tokens && call.shared.cols == cols));
  HOCKET_CHECK(call.group_size >= 1);
  with_dtype(call.dtype, [&](auto t) {
    using T = decltype(t);
    const auto& kernels = backend.rows().of<T>();
    for_row_ranges(backend, tokens, cols * k, [&](int64_t begin, int64_t end, int) {
      for (int64_t token = begin; token < end; ++token) {
        TokenSlots<T> slots;
        for (int64_t s = 0; s < k; ++s)
          if (const std::byte* const row = call.rows.row(token)[s]; row != nullptr)
            slots.add(call.ids.row(token)[s] / call.group_size, reinterpret_cast<const T*>(row),
                      call.weights.rows > 0 ? call.weights.row(token)[s] : 1.0f);
        slots.close();
        CombineRow<T> row = slots.row(0, slots.count, cols, call.residual.row(token));
        row.scale = call.output_scale;
        if (call.shared.rows > 0) row.shared = call.shared.row(token);
        kernels.combine(row);
      }
    });
  });
}

}  // namespace hocket
