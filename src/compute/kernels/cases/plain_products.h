// Products of any weight format by ref, all rows and columns at once, with nothing fused or split:
// tests compare operations with them.
#pragma once

#include "compute/kernels/cases/scaled_cases.h"
#include "compute/kernels/row_kernels.h"
#include "compute/kernels/task_product.h"

namespace hocket::cases {

inline void plain_integers(View<const Bf16> x, const PackedWeight& w, ScaledProduct<int8_t> p) {
  p.x_stride = round_up(w.k, kIntegerBlockK);
  std::vector<int8_t> numbers(x.rows * p.x_stride);
  std::vector<float> scales(x.rows * w.groups());
  std::vector<int32_t> sums(scales.size());
  for (int64_t row = 0; row < x.rows; ++row)
    row_kernels(Isa::ref).of<Bf16>().quantize({.x = x.row(row),
                                               .n = w.k,
                                               .group = w.group,
                                               .padded = p.x_stride,
                                               .q = numbers.data() + row * p.x_stride,
                                               .scales = scales.data() + row * w.groups(),
                                               .sums = sums.data() + row * w.groups()});
  p.x = numbers.data();
  p.x_scales = scales.data();
  p.x_sums = sums.data();
  product_kernels(Isa::ref).integer(w.format)(p);
}

// Returns x . w * column scale + bias as [rows, n].
inline std::vector<float> plain_product(MatrixView x, const PackedWeight& w) {
  const int columns = w.panels() * kPanelN, rows = static_cast<int>(x.rows);
  std::vector<float> whole(int64_t{rows} * columns + 1), y(int64_t{rows} * w.n);
  const auto put_into = [&](auto p) {
    p.rows = rows;
    p.y = whole.data();
    p.y_stride = columns;
    return p;
  };
  const ProductKernels& ref = product_kernels(Isa::ref);
  switch (w.format) {
    case WeightFormat::bf16:
      ref.bf16(put_into(product_of(x.as<const Bf16>(), w, 0, w.panels())));
      break;
    case WeightFormat::f32:
      ref.f32(put_into(product_of(x.as<const float>(), w, 0, w.panels())));
      break;
    case WeightFormat::fp8: {
      auto p = put_into(scaled_product_of<Bf16>(w, 0, w.panels()));
      p.x = x.as<const Bf16>().data;
      p.x_stride = x.stride;
      ref.fp8(p);
      break;
    }
    case WeightFormat::mxfp4:
    case WeightFormat::mxfp8:
    case WeightFormat::nvfp4: {
      auto p = put_into(scaled_product_of<Bf16>(w, 0, w.panels()));
      p.x = x.as<const Bf16>().data;
      p.x_stride = x.stride;
      ref.mx(p);
      break;
    }
    default:
      plain_integers(x.as<const Bf16>(), w, put_into(scaled_product_of<int8_t>(w, 0, w.panels())));
  }
  for (int64_t row = 0; row < rows; ++row)
    for (int n = 0; n < w.n; ++n) {
      float& to = y[row * w.n + n];
      to = whole[row * columns + n];
      if (w.column_scales != nullptr) to = to * w.column_scales[n];
      if (w.bias != nullptr) to = to + w.bias[n];
    }
  return y;
}

}  // namespace hocket::cases
