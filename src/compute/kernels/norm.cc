#include "compute/kernels/norm.h"

#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {

void rms_norm(Backend& backend, View<const float> x, std::span<const float> w, float eps,
              MatrixView y) {
  HOCKET_CHECK(y.rows == x.rows);
  HOCKET_CHECK(y.cols == x.cols);
  HOCKET_CHECK(static_cast<int64_t>(w.size()) == x.cols);
  with_dtype(y.dtype, [&](auto t) {
    using T = decltype(t);
    const auto& kernels = backend.rows().of<T>();
    const View<T> out = y.as<T>();
    for_row_ranges(backend, x.rows, x.cols, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r)
        kernels.rms_norm(x.row(r), w.data(), x.cols, eps, out.row(r));
    });
  });
}

void rms_norm_in_place(Backend& backend, View<float> x, std::span<const float> w, float eps) {
  rms_norm(backend, x, w, eps, MatrixView::of(x));
}

void add_rms_norm(Backend& backend, View<float> x, std::span<const float> w, float eps,
                  View<float> y) {
  rms_norm_in_place(backend, x, w, eps);
  HOCKET_CHECK((y.rows == x.rows && y.cols == x.cols));
  for_row_ranges(backend, x.rows, x.cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t i = 0; i < x.cols; ++i) y.row(r)[i] += x.row(r)[i];
  });
}

}  // namespace hocket
