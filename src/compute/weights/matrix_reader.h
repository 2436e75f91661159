// Reads rows of one matrix [n, k] of a model from its source: files in any format of docs/models.md
// ("number formats"), or the seeded generator. Private to the room. Thread: open and done_with: the
// one that loads; reading: any.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "compute/weights/quantize.h"
#include "compute/weights/stored_matrix.h"
#include "compute/weights/stored_rows.h"
#include "compute/weights/weight_source.h"
#include "core/model_config.h"

namespace hocket {

// Reads the numbers of a tensor that find_plain found with the shape [n] or [1, n].
void read_vector(const StoredTensor& tensor, int n, float* out);

class MatrixReader {
 public:
  enum class Kind : uint8_t { plain, scaled, random };

  // Finds the matrix as find_matrix() does, with the same errors. Reads headers only.
  static Result<MatrixReader> open(const WeightSource& source, const QuantConfig& quant,
                                   const std::string& name, int n, int k);
  // Opens a random matrix in the format that `quant` gives such a module.
  static Result<MatrixReader> random(uint64_t seed, const QuantConfig& quant,
                                     const std::string& name, int n, int k);

  Kind kind() const { return kind_; }
  const std::string& name() const { return name_; }
  int n() const { return n_; }
  int k() const { return k_; }
  MatrixFormat format() const { return stored_.format; }  // bf16: not quantized
  // Returns the name of the type of the files.   Kind plain only.
  std::string_view type_name() const;
  bool in_rows() const { return stored_.in_rows(); }  // they give fp32 only
  // Kind plain only.
  bool is_stored_bf16() const { return stored_.numbers.type == StoredType::bf16; }
  bool has_float32_scales() const {
    return kind_ == Kind::scaled && !in_rows() && stored_.scales.tensor.type == StoredType::f32;
  }
  int64_t row_bytes() const;  // approximate bytes per row in the files; random rows: as fp32

  // Checks the data of a quantized matrix for faults that headers do not show: columns out of
  // order. Errors: unsupported_model, wrong_shape.
  Result<void> check_contents() const;

  // Reads rows from row_begin on. T is float; for kind plain also Bf16. Not for kind scaled, except
  // in_rows().
  template <class T>
  void read(int row_begin, View<T> out) const;
  // Reads rows of kind scaled. Returns false if a number is NaN.
  // mxfp4, mxfp8: also if a scale is NaN, or its products are beyond the normal numbers of bf16.
  [[nodiscard]] bool read(int row_begin, const ScaledRows& out) const;

  // Rows [begin, end) will be read soon: has the kernel read their file pages, and with the first
  // row those of scales, and of numbers whose rows are interleaved.
  void will_read(int begin, int end) const;
  // Rows [begin, end) will not be read again: gives their file pages back. The pages of scales, and
  // of numbers whose rows are interleaved, follow with the last row.
  void done_with(int begin, int end) const;

 private:
  template <class T>
  void read_columns(int row_begin, View<T> out) const;
  template <class F>
  void each_range(int begin, int end, bool with_whole, F f) const;
  bool read_mx(int row_begin, const ScaledRows& out) const;
  float column_scale() const;
  uint8_t zero_at(int64_t row, int64_t group) const;

  Kind kind_ = Kind::plain;
  std::string name_;
  int n_ = 0, k_ = 0;
  uint64_t seed_ = 0;
  const WeightSource* source_ = nullptr;
  StoredMatrix stored_;  // kind random: its format alone
};

}  // namespace hocket
