#include "compute/weights/gguf_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "compute/weights/gguf_blocks.h"

namespace hocket {
namespace {

class BlockRows final : public StoredRows {
 public:
  BlockRows(const GgufMatrix& matrix, GgufChange change) : matrix_(matrix), change_(change) {}

  std::string_view type_name() const override { return matrix_.type->name; }
  int64_t columns() const override { return matrix_.k; }
  MatrixFormat format() const override { return format_of_blocks(matrix_.type->id); }
  void read(int64_t row_begin, View<float> out) const override {
    for (int64_t row = 0; row < out.rows; ++row) {
      read_blocks(*matrix_.type, row_data(row_begin + row), out.cols, out.row(row));
      for (float& x : std::span(out.row(row), static_cast<size_t>(out.cols))) x = unchanged(x);
    }
  }
  bool read_scaled(int64_t row_begin, const ScaledRows& out) const override {
    if (!keeps_values(matrix_.type->id)) {
      std::vector<float> numbers(static_cast<size_t>(out.numbers.rows * out.numbers.cols));
      const View<float> rows(numbers.data(), out.numbers.rows, out.numbers.cols);
      read(row_begin, rows);
      return quantize_scaled_rows(rows, out);
    }
    bool sound = true;
    for (int64_t row = 0; row < out.numbers.rows; ++row)
      sound &= read_scaled_blocks(*matrix_.type, row_data(row_begin + row), out, row);
    return sound;
  }
  std::vector<std::span<const std::byte>> bytes_of(int64_t begin, int64_t end) const override {
    return {{row_data(begin), static_cast<size_t>((end - begin) * matrix_.row_bytes())}};
  }

 private:
  const std::byte* row_data(int64_t row) const { return matrix_.data + row * matrix_.row_bytes(); }
  float unchanged(float x) const {
    switch (change_) {
      case GgufChange::none:
        return x;
      case GgufChange::added_one:
        return x - 1;
      case GgufChange::negative_exponential:
        return std::log(-x);
    }
    return x;
  }

  GgufMatrix matrix_;
  GgufChange change_;
};

class LatentRows final : public StoredRows {
 public:
  LatentRows(const GgufMatrix& keys, const GgufMatrix& values, int64_t heads)
      : keys_(keys), values_(values), heads_(heads) {}

  std::string_view type_name() const override { return keys_.type->name; }
  int64_t columns() const override { return values_.k; }
  void read(int64_t row_begin, View<float> out) const override {
    const int64_t rank = values_.k, nope = keys_.k, value = values_.rows / heads_;
    std::vector<float> key(static_cast<size_t>(nope));
    for (int64_t row = 0; row < out.rows;) {
      const int64_t head = (row_begin + row) / (nope + value);
      const int64_t first = (row_begin + row) % (nope + value);
      const int64_t rows = std::min(out.rows - row, nope + value - first);
      const int64_t keys = std::clamp<int64_t>(nope - first, 0, rows);
      for (int64_t c = 0; keys > 0 && c < rank; ++c) {
        read_blocks(*keys_.type, keys_.data + (head * rank + c) * keys_.row_bytes(), nope,
                    key.data());
        for (int64_t i = 0; i < keys; ++i) out.row(row + i)[c] = key[first + i];
      }
      for (int64_t i = keys; i < rows; ++i)
        read_blocks(*values_.type,
                    values_.data + (head * value + first + i - nope) * values_.row_bytes(), rank,
                    out.row(row + i));
      row += rows;
    }
  }
  std::vector<std::span<const std::byte>> bytes_of(int64_t begin, int64_t end) const override {
    const int64_t rows = keys_.k + values_.rows / heads_;
    std::vector<std::span<const std::byte>> out;
    for (const GgufMatrix* matrix : {&keys_, &values_}) {
      const int64_t head_bytes = matrix->bytes() / heads_;
      out.emplace_back(matrix->data + begin / rows * head_bytes,
                       static_cast<size_t>((end - begin) / rows * head_bytes));
    }
    return out;
  }

 private:
  GgufMatrix keys_, values_;
  int64_t heads_;
};

}  // namespace

std::shared_ptr<const StoredRows> gguf_rows(const GgufMatrix& matrix, GgufChange change) {
  return std::make_shared<BlockRows>(matrix, change);
}

std::shared_ptr<const StoredRows> gguf_latent_rows(const GgufMatrix& keys, const GgufMatrix& values,
                                                   int64_t heads) {
  return std::make_shared<LatentRows>(keys, values, heads);
}

}  // namespace hocket
