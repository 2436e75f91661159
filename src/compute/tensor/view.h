// Borrowed row-major matrices. A view owns nothing and is valid until the step ends. Rows are
// `stride` elements apart (stride >= cols), so a range of rows or columns is a view too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "compute/tensor/bf16.h"

namespace hocket {

template <class T>
struct View {
  T* data = nullptr;
  int64_t rows = 0, cols = 0, stride = 0;

  View() = default;
  View(T* d, int64_t r, int64_t c) : data(d), rows(r), cols(c), stride(c) {}
  View(T* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), cols(c), stride(s) {}
  operator View<const T>() const
    requires(!std::is_const_v<T>)
  {
    return {data, rows, cols, stride};
  }

  T* row(int64_t r) const { return data + r * stride; }
  View slice_rows(int64_t begin, int64_t count) const {
    HOCKET_CHECK((begin >= 0 && count >= 0 && begin + count <= rows));
    return {data + begin * stride, count, cols, stride};
  }
  View slice_cols(int64_t begin, int64_t count) const {
    HOCKET_CHECK((begin >= 0 && count >= 0 && begin + count <= cols));
    return {data + begin, rows, count, stride};
  }
};

// A view whose element type is known only at run time: bf16 activations, or fp32 on request.
struct MatrixView {
  void* data = nullptr;
  DType dtype = DType::bf16;
  int64_t rows = 0, cols = 0, stride = 0;

  template <class T>
  static MatrixView of(View<T> v) {
    return {const_cast<std::remove_const_t<T>*>(v.data), dtype_of<std::remove_const_t<T>>, v.rows,
            v.cols, v.stride};
  }
  // The element type must be T; a mismatch is a bug and aborts.
  template <class T>
  View<T> as() const {
    HOCKET_CHECK(dtype == dtype_of<std::remove_const_t<T>>);
    return {static_cast<T*>(data), rows, cols, stride};
  }
  MatrixView slice_rows(int64_t begin, int64_t count) const {
    HOCKET_CHECK((begin >= 0 && count >= 0 && begin + count <= rows));
    return {static_cast<std::byte*>(data) + begin * stride * size_of(dtype), dtype, count, cols,
            stride};
  }
  MatrixView first_cols(int64_t count) const {
    HOCKET_CHECK((count >= 0 && count <= cols));
    return {data, dtype, rows, count, stride};
  }
};

// Calls f with a value of the element type:
//   with_dtype(x.dtype, [&](auto t) { using T = decltype(t); ... });
template <class F>
void with_dtype(DType dtype, F&& f) {
  if (dtype == DType::bf16) return f(Bf16{});
  HOCKET_CHECK(dtype == DType::f32);
  f(float{});
}

// Length of a k-block of the canonical product. Rows are padded with zeros to whole k-blocks.
inline constexpr int kBlockK = 32;
constexpr int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace hocket
