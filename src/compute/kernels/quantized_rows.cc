#include "compute/kernels/quantized_rows.h"

#include <cstring>

#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {
namespace {

int64_t scale_at(int64_t n) {
  return quantized_columns(n) - int64_t{sizeof(float)};
}

View<int8_t> bytes_of(MatrixView x) {
  HOCKET_CHECK(x.dtype == DType::int8);
  return {static_cast<int8_t*>(x.data), x.rows, x.cols, x.stride};
}

// from(i) returns the start of the row for out[i, :].
template <class From>
void dequantize(Backend& backend, MatrixView out, From&& from) {
  with_dtype(out.dtype, [&](auto t) {
    using T = decltype(t);
    const View<T> to = out.as<T>();
    const auto body = backend.rows().of<T>().dequantize;
    const int64_t scale_begin = scale_at(to.cols);
    for_row_ranges(backend, to.rows, to.cols, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        const int8_t* const row = from(r);
        float scale;
        std::memcpy(&scale, row + scale_begin, sizeof scale);
        body(row, scale, to.cols, to.row(r));
      }
    });
  });
}

}  // namespace

void quantize_rows(Backend& backend, MatrixView x, MatrixView out) {
  HOCKET_CHECK(x.rows == out.rows);
  HOCKET_CHECK(out.cols == quantized_columns(x.cols));
  with_dtype(x.dtype, [&](auto t) {
    using T = decltype(t);
    const View<T> from = x.as<T>();
    const View<int8_t> to = bytes_of(out);
    const auto body = backend.rows().of<T>().quantize;
    const int64_t n = from.cols, padded = scale_at(n);
    for_row_ranges(backend, from.rows, n, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        float scale = 0;
        body({.x = from.row(r),
              .n = n,
              .group = n,
              .padded = padded,
              .q = to.row(r),
              .scales = &scale});
        std::memcpy(to.row(r) + padded, &scale, sizeof scale);
      }
    });
  });
}

void dequantize_rows(Backend& backend, std::span<const std::byte* const> rows, MatrixView out) {
  HOCKET_CHECK(std::ssize(rows) == out.rows);
  dequantize(backend, out, [&](int64_t i) { return reinterpret_cast<const int8_t*>(rows[i]); });
}

void dequantize_rows(Backend& backend, MatrixView x, std::span<const int32_t> rows,
                     MatrixView out) {
  HOCKET_CHECK(std::ssize(rows) == out.rows);
  HOCKET_CHECK(x.cols == quantized_columns(out.cols));
  const View<int8_t> from = bytes_of(x);
  dequantize(backend, out, [&](int64_t i) {
    HOCKET_CHECK(rows[i] >= 0 && rows[i] < from.rows);
    return from.row(rows[i]);
  });
}

}  // namespace hocket
