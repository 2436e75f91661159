// Parts of a product that workers take: some rows by some panels, with weights of any format.
#pragma once

#include <algorithm>

#include "compute/kernels/backend.h"
#include "compute/kernels/choose.h"
#include "compute/kernels/product_kernels.h"

namespace hocket {

// Describes the product of all rows of x and some panels of w. The caller sets the destination.
template <class T>
Product<T> product_of(View<const T> x, const PackedWeight& w, int panel, int panels) {
  Product<T> p;
  p.x = x.data;
  p.x_stride = x.stride;
  p.rows = static_cast<int>(x.rows);
  p.w = w.panel_as<T>(panel);
  p.panel_stride = int64_t{w.k_blocks()} * kTileElements;
  p.panels = panels;
  p.k_blocks = w.k_blocks();
  return p;
}
// The same for weights under scales; the caller sets the rows, too.
template <class X>
ScaledProduct<X> scaled_product_of(const PackedWeight& w, int panel, int panels) {
  const int64_t first = int64_t{panel} * w.groups() * kPanelN;
  ScaledProduct<X> p;
  p.format = w.format;
  p.w = w.panel(panel);
  p.panel_bytes = w.panel_bytes();
  p.panels = panels;
  p.k_blocks = w.k_blocks();
  p.group_blocks = w.group / block_k(w.format);
  p.groups = w.groups();
  p.panel_scale_bytes = w.panel_scale_bytes();
  if (has_table(w.format)) p.table = &number_table(w.format);
  p.scales = w.scales + panel * p.panel_scale_bytes;
  p.zeros = w.zeros == nullptr ? nullptr : w.zeros + first;
  return p;
}

// Returns how many of `rows` come first if they are cut into the fewest parts of at most
// `max_rows`, as equal as possible.
inline int64_t equal_share(int64_t rows, int64_t max_rows) {
  const int64_t parts = (rows - 1) / max_rows + 1;
  return (rows + parts - 1) / parts;
}

// Rows that are ready to be multiplied with weights of one format: as they are, or, for integer
// weights, quantized once into the scratch of all workers, quantized_rows() in each.
class ProductRows {
 public:
  struct Part {
    int row, rows, panel, panels, worker;
  };

  // Returns how many rows can be ready at one time.
  static int max_rows(const Backend& backend, const PackedWeight& w);
  // x [at most max_rows(), w.k] of the activation type. All workers quantize. The rows may then be
  // multiplied with any weights of the same k, format and group. The scratch stays in use until the
  // last product.
  ProductRows(const Backend& backend, MatrixView x, const PackedWeight& w);

  // y [part.rows, part.panels * 16] = product * column scale + bias, where w has these.
  // Thread: worker part.worker.
  void multiply(const PackedWeight& w, const Part& part, float* y, int64_t y_stride) const;
  // Multiplies into scratch, some rows at a time, and calls then(row, results) for each; results
  // [rows, part.panels * 16] are those of the rows from `row` on.
  template <class Then>
  void multiply_then(const PackedWeight& w, Part part, Then&& then) const {
    HOCKET_CHECK(part.panels <= kMaxTaskPanels);
    const int columns = part.panels * kPanelN, stride = columns + kPanelN;
    const int end = part.row + part.rows, most = kTaskResults / stride;
    float* results = reinterpret_cast<float*>(scratch(part.worker, results_at_, kResultBytes));
    for (; part.row < end; part.row += most) {
      part.rows = std::min(most, end - part.row);
      multiply(w, part, results, stride);
      then(part.row, View<const float>(results, part.rows, columns, stride));
    }
  }

 private:
  // The quantized rows in one worker's scratch.
  struct Quantized {
    int8_t* numbers;  // [rows_in_scratch_][k padded]
    float* scales;    // [rows_in_scratch_][groups]
    int32_t* sums;
  };
  Quantized quantized(int worker) const;
  void quantize() const;
  std::byte* scratch(int worker, int64_t at, int64_t bytes) const {
    return backend_->scratch<std::byte>(worker, at + bytes) + at;
  }
  template <class T>
  void multiply_plain(const PackedWeight& w, const Part& part, float* y, int64_t y_stride) const;
  void multiply_scaled(const PackedWeight& w, const Part& part, float* y, int64_t y_stride) const;
  void multiply_integers(const PackedWeight& w, const Part& part, float* y, int64_t y_stride) const;

  static constexpr int64_t kResultBytes = int64_t{kTaskResults} * sizeof(float);
  const Backend* backend_;
  MatrixView x_;
  int group_ = 0, groups_ = 0;  // quantization groups of the rows
  int rows_in_scratch_ = 0;     // in that of one worker
  int64_t padded_k_ = 0;
  int64_t results_at_ = 0;  // offset in a worker's scratch, after its quantized rows
};

}  // namespace hocket
