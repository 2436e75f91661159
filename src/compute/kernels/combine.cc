#include "compute/kernels/combine.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "compute/kernels/combine_slots.h"
#include "compute/kernels/int8_sums.h"
#include "compute/kernels/quantized_rows.h"
#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {
namespace {

template <class T>
const T* row_at(const View<T>& rows, int64_t row) {
  HOCKET_CHECK(row >= 0 && row < rows.rows);
  return rows.row(row);
}

}  // namespace

std::vector<int32_t> combine_leaves(int num_experts, int num_groups) {
  HOCKET_CHECK(num_groups >= 1 && num_groups <= kMaxCombineGroups);
  HOCKET_CHECK(num_experts % num_groups == 0);
  const auto groups = static_cast<unsigned>(num_groups);
  const auto run = groups >> std::countr_zero(groups);  // the odd part
  const unsigned leaves_of_run = std::bit_ceil(run);
  std::vector<int32_t> leaves;
  for (int expert = 0; expert < num_experts; ++expert) {
    const unsigned group = static_cast<unsigned>(expert) / (num_experts / groups);
    leaves.push_back(static_cast<int32_t>(group / run * leaves_of_run + group % run));
  }
  return leaves;
}

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
  with_dtype(call.y.dtype, [&](auto t) {
    using T = decltype(t);
    const View<T> rows = call.y.as<T>();
    const auto& kernels = backend.rows().of<T>();
    for_row_ranges(backend, tokens, rows.cols * k, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t token = begin; token < end; ++token) {
        TokenSlots<T> slots;
        for (int64_t s = 0; s < k; ++s) {
          const int id = call.ids.row(token)[s];
          HOCKET_CHECK(id >= 0 && id < std::ssize(call.leaves));
          slots.add(call.leaves[id], row_at(rows, call.position.row(token)[s]),
                    call.weights.row(token)[s]);
        }
        CombineRow<T> row = slots.row(0, slots.count, rows.cols, call.residual.row(token));
        row.scale = call.output_scale;
        if (call.shared.rows > 0) row.shared = call.shared.row(token);
        if (call.int8_sums)
          Int8Sums(backend, worker, rows.cols).add(row);
        else
          kernels.combine(row);
      }
    });
  });
}

namespace {

// Calls write(row, index, worker) for each sum of each token; the row's residual is null.
template <class T, class Write>
void each_partial_sum(Backend& backend, const PartialCombineCall& call, Write&& write) {
  const int64_t tokens = call.ids.rows, k = call.ids.cols, cols = call.y.cols;
  const View<T> rows = call.y.as<T>();
  for_row_ranges(backend, tokens, cols * k, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t token = begin; token < end; ++token) {
      TokenSlots<T> slots;
      for (int64_t s = 0; s < k; ++s)
        if (const int id = call.ids.row(token)[s]; id >= 0) {
          HOCKET_CHECK(id < std::ssize(call.leaves));
          slots.add(call.leaves[id], row_at(rows, call.position.row(token)[s]),
                    call.weights.row(token)[s], call.nodes.row(token)[s]);
        }
      int64_t index = call.first[token];
      for (int first = 0, s = 0; s < slots.count; ++s) {
        if (s + 1 < slots.count && slots.node[s + 1] == slots.node[s]) continue;
        HOCKET_CHECK(index >= 0 && index < call.out.rows);
        write(slots.row(first, s + 1, cols, nullptr), index++, worker);
        first = s + 1;
      }
    }
  });
}

}  // namespace

void combine_partly(Backend& backend, const PartialCombineCall& call) {
  const int64_t tokens = call.ids.rows, k = call.ids.cols, cols = call.y.cols;
  HOCKET_CHECK(k >= 1 && k <= kMaxSlots);
  HOCKET_CHECK(call.position.rows == tokens && call.position.cols == k);
  HOCKET_CHECK(call.weights.rows == tokens && call.weights.cols == k);
  HOCKET_CHECK(std::ssize(call.first) == tokens);
  HOCKET_CHECK(call.nodes.rows == tokens && call.nodes.cols == k);
  const bool int8 = call.out.dtype == DType::int8;
  HOCKET_CHECK(call.out.cols == (int8 ? quantized_columns(cols) : cols));
  with_dtype(call.y.dtype, [&](auto t) {
    using T = decltype(t);
    if (int8)
      return each_partial_sum<T>(
          backend, call, [&](const CombineRow<T>& row, int64_t index, int worker) {
            Int8Sums(backend, worker, cols)
                .write(row, static_cast<int8_t*>(call.out.data) + index * call.out.stride);
          });
    const View<T> out = call.out.as<T>();
    const auto& kernels = backend.rows().of<T>();
    each_partial_sum<T>(backend, call, [&](CombineRow<T> row, int64_t index, int worker) {
      // A sum that is added to a row of +0 is never -0. This changes at most the sign of a zero,
      // which the addition of +0 to the root removes in any case.
      row.residual = backend.scratch<float>(worker, cols);
      std::fill_n(row.residual, cols, 0.0f);
      kernels.combine(row);
      kernels.round(row.residual, cols, out.row(index));
    });
  });
}

namespace {

// add(row, worker) adds a token's tree to the residual.
template <class T, class Add>
void each_placed(Backend& backend, const PlacedCombineCall& call, Add&& add) {
  const int64_t tokens = call.residual.rows, k = call.ids.cols, cols = call.residual.cols;
  for_row_ranges(backend, tokens, cols * k, [&](int64_t begin, int64_t end, int worker) {
    for (int64_t token = begin; token < end; ++token) {
      TokenSlots<T> slots;
      for (int64_t s = 0; s < k; ++s)
        if (const std::byte* const row = call.rows.row(token)[s]; row != nullptr) {
          const int id = call.ids.row(token)[s];
          HOCKET_CHECK(id >= 0 && id < std::ssize(call.leaves));
          slots.add(call.leaves[id], reinterpret_cast<const T*>(row),
                    call.weights.rows > 0 ? call.weights.row(token)[s] : 1.0f);
        }
      CombineRow<T> row = slots.row(0, slots.count, cols, call.residual.row(token));
      row.scale = call.output_scale;
      if (call.shared.rows > 0) row.shared = call.shared.row(token);
      add(row, worker);
    }
  });
}

}  // namespace

void combine_placed(Backend& backend, const PlacedCombineCall& call) {
  const int64_t tokens = call.residual.rows, k = call.ids.cols, cols = call.residual.cols;
  HOCKET_CHECK(k >= 1 && k <= kMaxSlots);
  HOCKET_CHECK(call.ids.rows == tokens);
  HOCKET_CHECK(call.rows.rows == tokens && call.rows.cols == k);
  if (call.weights.rows > 0) HOCKET_CHECK((call.weights.rows == tokens && call.weights.cols == k));
  if (call.shared.rows > 0) HOCKET_CHECK((call.shared.rows == tokens && call.shared.cols == cols));
  if (call.dtype == DType::int8)
    return each_placed<int8_t>(backend, call, [&](const CombineRow<int8_t>& row, int worker) {
      Int8Sums(backend, worker, cols).add(row);
    });
  with_dtype(call.dtype, [&](auto t) {
    using T = decltype(t);
    const auto& kernels = backend.rows().of<T>();
    each_placed<T>(backend, call, [&](const CombineRow<T>& row, int) { kernels.combine(row); });
  });
}

int64_t int8_sums_scratch_bytes(int64_t cols) {
  return Int8Sums::scratch_bytes(cols);
}

}  // namespace hocket
