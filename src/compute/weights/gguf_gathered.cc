#include <algorithm>
#include <utility>

#include "base/check.h"
#include "compute/weights/gguf_blocks.h"
#include "compute/weights/gguf_rows.h"
#include "compute/weights/product_spec.h"

namespace hocket {
namespace {

ScaledRows slice_of(const ScaledRows& rows, int64_t begin, int64_t count) {
  ScaledRows out = rows;
  out.numbers = rows.numbers.slice_rows(begin, count);
  out.scales = rows.scales.slice_rows(begin, count);
  if (rows.zeros.rows > 0) out.zeros = rows.zeros.slice_rows(begin, count);
  if (rows.block_scales.rows > 0) out.block_scales = rows.block_scales.slice_rows(begin, count);
  if (!rows.column_scales.empty())
    out.column_scales =
        rows.column_scales.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  return out;
}

// Reads rows of another format than out.format, and quantizes them again.
bool quantize_rows_of(const StoredRows& matrix, int64_t row_begin, const ScaledRows& out) {
  RowScratch scratch;
  const View<float> values = scratch.values<float>(out.numbers.rows, out.numbers.cols);
  matrix.read(row_begin, values);
  return quantize_scaled_rows(values, out);
}

class GatheredRows final : public StoredRows {
 public:
  GatheredRows(std::vector<std::shared_ptr<const StoredRows>> matrices, std::vector<GgufRun> runs)
      : matrices_(std::move(matrices)), runs_(std::move(runs)) {
    for (int64_t begin = 0; const GgufRun& run : runs_) {
      begins_.push_back(begin);
      begin += run.rows;
    }
  }

  std::string_view type_name() const override { return matrices_.front()->type_name(); }
  MatrixFormat format() const override {
    MatrixFormat all = matrices_.front()->format();
    for (const auto& matrix : matrices_) all = common_format(all, matrix->format());
    return all;
  }
  int64_t columns() const override { return matrices_.front()->columns(); }
  void read(int64_t row_begin, View<float> out) const override {
    each_piece(row_begin, out.rows,
               [&](const StoredRows& matrix, int64_t row, int64_t at, int64_t count) {
                 matrix.read(row, out.slice_rows(at, count));
               });
  }
  bool read_scaled(int64_t row_begin, const ScaledRows& out) const override {
    bool sound = true;
    each_piece(row_begin, out.numbers.rows,
               [&](const StoredRows& matrix, int64_t row, int64_t at, int64_t count) {
                 const ScaledRows piece = slice_of(out, at, count);
                 sound &= matrix.format() == out.format ? matrix.read_scaled(row, piece)
                                                        : quantize_rows_of(matrix, row, piece);
               });
    return sound;
  }
  std::vector<std::span<const std::byte>> bytes_of(int64_t begin, int64_t end) const override {
    std::vector<std::span<const std::byte>> all;
    each_piece(begin, end - begin,
               [&](const StoredRows& matrix, int64_t row, int64_t /*at*/, int64_t count) {
                 for (const auto bytes : matrix.bytes_of(row, row + count)) all.push_back(bytes);
               });
    return all;
  }

 private:
  // Calls body(matrix, its row, row of the result, number of rows) for the pieces of `rows` rows.
  template <class Body>
  void each_piece(int64_t row_begin, int64_t rows, Body body) const {
    size_t run = std::ranges::upper_bound(begins_, row_begin) - begins_.begin() - 1;
    for (int64_t at = 0; at < rows; ++run) {
      HOCKET_CHECK(run < runs_.size());
      const int64_t skipped = row_begin + at - begins_[run];
      const int64_t count = std::min(rows - at, runs_[run].rows - skipped);
      body(*matrices_[runs_[run].matrix], runs_[run].row + skipped, at, count);
      at += count;
    }
  }

  std::vector<std::shared_ptr<const StoredRows>> matrices_;
  std::vector<GgufRun> runs_;
  std::vector<int64_t> begins_;
};

class GatheredColumns final : public StoredRows {
 public:
  GatheredColumns(std::shared_ptr<const StoredRows> matrix, std::vector<int64_t> order)
      : matrix_(std::move(matrix)), order_(std::move(order)) {}

  std::string_view type_name() const override { return matrix_->type_name(); }
  MatrixFormat format() const override { return gguf_gathered_format(matrix_->format(), width()); }
  int64_t columns() const override { return matrix_->columns(); }
  void read(int64_t row_begin, View<float> out) const override {
    RowScratch scratch;
    const View<float> rows = scratch.values<float>(out.rows, out.cols);
    matrix_->read(row_begin, rows);
    for (int64_t row = 0; row < out.rows; ++row) move(rows.row(row), width(), out.row(row));
  }
  bool read_scaled(int64_t row_begin, const ScaledRows& out) const override {
    RowScratch scratch;
    if (out.format != matrix_->format()) return quantize_rows_of(*this, row_begin, out);
    const ScaledRows rows = scratch.scaled(out.format, out.numbers.rows, out.numbers.cols);
    const bool sound = matrix_->read_scaled(row_begin, rows);
    const int64_t groups = width() / out.format.group, scales = width() / out.scale_k();
    for (int64_t row = 0; row < out.numbers.rows; ++row) {
      move(rows.numbers.row(row), width(), out.numbers.row(row));
      move(rows.scales.row(row), scales, out.scales.row(row));
      if (out.zeros.rows > 0) move(rows.zeros.row(row), groups, out.zeros.row(row));
      if (out.block_scales.rows > 0)
        move(rows.block_scales.row(row), width() / kScaleBlock, out.block_scales.row(row));
    }
    return sound;
  }
  std::vector<std::span<const std::byte>> bytes_of(int64_t begin, int64_t end) const override {
    return matrix_->bytes_of(begin, end);
  }

 private:
  int64_t width() const { return columns() / std::ssize(order_); }
  template <class T>
  void move(const T* from, int64_t count, T* to) const {
    for (const int64_t run : order_) to = std::copy_n(from + run * count, count, to);
  }

  std::shared_ptr<const StoredRows> matrix_;
  std::vector<int64_t> order_;
};

}  // namespace

MatrixFormat gguf_gathered_format(MatrixFormat own, int64_t width) {
  // Gathered columns may end inside a block of 256; its scales cannot be cut, so rows are quantized
  // again.
  if (has_block_scales(own.format) && width % kScaleBlock != 0) return kQ8Format;
  return own.is_scaled() && width % own.group == 0 ? own : MatrixFormat{};
}

std::shared_ptr<const StoredRows> gguf_gathered_rows(
    std::vector<std::shared_ptr<const StoredRows>> matrices, std::vector<GgufRun> runs) {
  return std::make_shared<GatheredRows>(std::move(matrices), std::move(runs));
}

std::shared_ptr<const StoredRows> gguf_gathered_columns(std::shared_ptr<const StoredRows> matrix,
                                                        std::vector<int64_t> order) {
  return std::make_shared<GatheredColumns>(std::move(matrix), std::move(order));
}

}  // namespace hocket
