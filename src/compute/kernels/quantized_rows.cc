#include "compute/kernels/quantized_rows.h"

#include <cstring>

#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {
namespace {

View<int8_t> bytes_of(MatrixView x) {
  HOCKET_CHECK(x.dtype == DType::int8);
  return {static_cast<int8_t*>(x.data), x.rows, x.cols, x.stride};
}

// from(i) returns the start of the row for out[i, :].
template <class T, class From>
void quantize(Backend& backend, int64_t n, MatrixView out, From&& from) {
  HOCKET_CHECK(out.cols == quantized_columns(n));
  const View<int8_t> to = bytes_of(out);
  const auto body = backend.rows().of<T>().quantize;
  for_row_ranges(backend, to.rows, n, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float scale = 0;
      body({.x = from(r),
            .n = n,
            .group = n,
            .padded = scale_column(n),
            .q = to.row(r),
            .scales = &scale});
      std::memcpy(to.row(r) + scale_column(n), &scale, sizeof scale);
    }
  });
}

template <class From>
void dequantize(Backend& backend, MatrixView out, From&& from) {
  with_dtype(out.dtype, [&](auto t) {
    using T = decltype(t);
    const View<T> to = out.as<T>();
    const auto body = backend.rows().of<T>().dequantize;
    const int64_t scale_begin = scale_column(to.cols);
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
  with_dtype(x.dtype, [&](auto t) {
    using T = decltype(t);
    const View<T> from = x.as<T>();
    quantize<T>(backend, from.cols, out, [&](int64_t i) { return from.row(i); });
  });
}

void quantize_rows(Backend& backend, std::span<const std::byte* const> rows, DType dtype, int64_t n,
                   MatrixView out) {
  HOCKET_CHECK(std::ssize(rows) == out.rows);
  with_dtype(dtype, [&](auto t) {
    using T = decltype(t);
    quantize<T>(backend, n, out, [&](int64_t i) { return reinterpret_cast<const T*>(rows[i]); });
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
