#include "compute/kernels/task_product.h"

#include <limits>

#include "compute/kernels/row_kernels.h"

namespace hocket {
namespace {

constexpr int kQuantizedNumbers = 16 << 10;  // numbers that one task quantizes: a microsecond

void scale_columns(const PackedWeight& w, const ProductRows::Part& part, float* y,
                   int64_t y_stride) {
  const int first = part.panel * kPanelN, count = std::min(part.panels * kPanelN, w.n - first);
  for (int row = 0; row < part.rows; ++row)
    for (int i = 0; i < count; ++i)
      y[row * y_stride + i] = y[row * y_stride + i] * w.column_scales[first + i];
}

void add_bias(const PackedWeight& w, const ProductRows::Part& part, float* y, int64_t y_stride) {
  const int first = part.panel * kPanelN, count = std::min(part.panels * kPanelN, w.n - first);
  for (int row = 0; row < part.rows; ++row)
    for (int i = 0; i < count; ++i)
      y[row * y_stride + i] = y[row * y_stride + i] + w.bias[first + i];
}

}  // namespace

int ProductRows::max_rows(const Backend& backend, const PackedWeight& w) {
  return is_integer(w.format) ? quantized_rows(w.k, w.groups()) * backend.workers().size()
                              : std::numeric_limits<int>::max();
}

ProductRows::ProductRows(const Backend& backend, MatrixView x, const PackedWeight& w)
    : backend_(&backend), x_(x) {
  HOCKET_CHECK(x.rows <= max_rows(backend, w));
  HOCKET_CHECK(x.cols == w.k);
  if (!is_integer(w.format)) return;
  HOCKET_CHECK(w.k <= kMaxIntegerDepth);
  group_ = w.group;
  groups_ = w.groups();
  rows_in_scratch_ = quantized_rows(w.k, groups_);
  padded_k_ = quantized_stride(w.k);
  results_at_ = quantized_bytes(w.k, groups_);
  quantize();
}

ProductRows::Quantized ProductRows::quantized(int worker) const {
  std::byte* at = scratch(worker, 0, results_at_);
  Quantized q;
  q.numbers = reinterpret_cast<int8_t*>(at);
  q.scales = reinterpret_cast<float*>(at + rows_in_scratch_ * padded_k_);
  q.sums = reinterpret_cast<int32_t*>(q.scales + int64_t{rows_in_scratch_} * groups_);
  return q;
}

void ProductRows::quantize() const {
  const auto quantize_row = backend_->rows().of<Bf16>().quantize;
  const View<const Bf16> x = x_.as<const Bf16>();
  const int rows = static_cast<int>(x.rows);
  const int share = static_cast<int>(std::max<int64_t>(1, kQuantizedNumbers / padded_k_));
  backend_->workers().run((rows + share - 1) / share, [&](int task, int) {
    for (int row = task * share; row < std::min(rows, (task + 1) * share); ++row) {
      const Quantized to = quantized(row / rows_in_scratch_);
      const int at = row % rows_in_scratch_;
      quantize_row({.x = x.row(row),
                    .n = x.cols,
                    .group = group_,
                    .padded = padded_k_,
                    .q = to.numbers + at * padded_k_,
                    .scales = to.scales + int64_t{at} * groups_,
                    .sums = to.sums + int64_t{at} * groups_});
    }
  });
}

template <class T>
void ProductRows::multiply_plain(const PackedWeight& w, const Part& part, float* y,
                                 int64_t y_stride) const {
  const View<const T> x = x_.as<const T>().slice_rows(part.row, part.rows);
  Product<T> p = product_of<T>(x, w, part.panel, part.panels);
  p.y = y;
  p.y_stride = y_stride;
  p.scratch =
      scratch(part.worker, results_at_ + kResultBytes, product_scratch_bytes(p.rows, p.k_blocks));
  backend_->products().run(p);
}

void ProductRows::multiply_scaled(const PackedWeight& w, const Part& part, float* y,
                                  int64_t y_stride) const {
  const View<const Bf16> x = x_.as<const Bf16>();
  auto p = scaled_product_of<Bf16>(w, part.panel, part.panels);
  p.x = x.row(part.row);
  p.x_stride = x.stride;
  p.rows = part.rows;
  p.y = y;
  p.y_stride = y_stride;
  p.scratch = scratch(part.worker, results_at_ + kResultBytes, scaled_product_scratch_bytes(w.k));
  const ProductKernels& kernels = backend_->products();
  // Checked here, since a check in a body may share its code (product_bodies.h).
  HOCKET_CHECK(w.format == WeightFormat::fp8 || is_mx(w.format));
  HOCKET_CHECK(w.group == kFp8Group || is_mx(w.format));
  (w.format == WeightFormat::fp8 ? kernels.fp8 : kernels.mx)(p);
}

// Rows are multiplied some at a time, and those in the scratch of different workers one after the
// other.
void ProductRows::multiply_integers(const PackedWeight& w, const Part& part, float* y,
                                    int64_t y_stride) const {
  HOCKET_CHECK(w.group == group_);
  const auto run = backend_->products().integer(w.format);
  auto p = scaled_product_of<int8_t>(w, part.panel, part.panels);
  p.x_stride = padded_k_;
  p.y_stride = y_stride;
  p.scratch = scratch(part.worker, results_at_ + kResultBytes, scaled_product_scratch_bytes(w.k));
  const int end = part.row + part.rows;
  for (int row = part.row; row < end; row += p.rows) {
    const Quantized from = quantized(row / rows_in_scratch_);
    const int at = row % rows_in_scratch_, remaining = std::min(end - row, rows_in_scratch_ - at);
    p.x = from.numbers + at * padded_k_;
    p.x_scales = from.scales + int64_t{at} * groups_;
    p.x_sums = from.sums + int64_t{at} * groups_;
    p.rows = static_cast<int>(equal_share(remaining, kIntegerRows));
    p.y = y + (row - part.row) * y_stride;
    run(p);
  }
}

void ProductRows::multiply(const PackedWeight& w, const Part& part, float* y,
                           int64_t y_stride) const {
  HOCKET_CHECK(is_integer(w.format) == (padded_k_ > 0));
  switch (w.format) {
    case WeightFormat::bf16:
      multiply_plain<Bf16>(w, part, y, y_stride);
      break;
    case WeightFormat::f32:
      multiply_plain<float>(w, part, y, y_stride);
      break;
    case WeightFormat::fp8:
    case WeightFormat::mxfp4:
    case WeightFormat::mxfp8:
    case WeightFormat::nvfp4:
      multiply_scaled(w, part, y, y_stride);
      break;
    default:
      multiply_integers(w, part, y, y_stride);
  }
  if (w.column_scales != nullptr) scale_columns(w, part, y, y_stride);
  if (w.bias != nullptr) add_bias(w, part, y, y_stride);
}

}  // namespace hocket
