// Reads rows of one matrix [n, k] of a model from its source: files in any format of docs/models.md
// ("number formats"), or the seeded generator. Private to the room. Thread: open and done_with: the
// one that loads; reading: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/weights/nibbles.h"
#include "compute/weights/quantize.h"
#include "compute/weights/stored_rows.h"
#include "compute/weights/weight_source.h"
#include "core/model_config.h"

namespace hocket {

// Removes ".weight": returns "model.norm" for "model.norm.weight".
std::string module_of(const std::string& name);

// Finds a tensor of one of the given shapes and of type float32, float16, bfloat16 or rows. Errors:
// missing_tensor, wrong_shape, unsupported_model (the type).
Result<StoredTensor> find_plain(const WeightSource& source, const std::string& name,
                                const std::vector<std::vector<int64_t>>& shapes);

// Reads the numbers of a tensor that find_plain found with the shape [n] or [1, n].
void read_vector(const StoredTensor& tensor, int n, float* out);

class MatrixReader {
 public:
  enum class Kind : uint8_t { plain, scaled, random };

  // `name` ends in ".weight"; if the files hold the matrix quantized, the names of its tensors are
  // derived from it and from the layout of `quant`. Reads headers only. Errors: as find_plain;
  // unsupported_model: a group or a depth that no kernel has.
  static Result<MatrixReader> open(const WeightSource& source, const QuantConfig& quant,
                                   const std::string& name, int n, int k);
  // Opens a random matrix in the format that `quant` gives such a module.
  static Result<MatrixReader> random(uint64_t seed, const QuantConfig& quant,
                                     const std::string& name, int n, int k);

  Kind kind() const { return kind_; }
  const std::string& name() const { return name_; }
  int n() const { return n_; }
  int k() const { return k_; }
  MatrixFormat format() const { return format_; }  // bf16: not quantized
  // Returns the name of the type of the files.   Kind plain only.
  std::string_view type_name() const;
  bool in_rows() const { return numbers_.type == StoredType::rows; }         // they give fp32 only
  bool is_stored_bf16() const { return numbers_.type == StoredType::bf16; }  // kind plain only
  bool has_float32_scales() const {
    return kind_ == Kind::scaled && !in_rows() && scales_.type == StoredType::f32;
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
  enum class Zeros : uint8_t { constant, bytes, nibbles };

  template <class T>
  void read_columns(int row_begin, View<T> out) const;
  bool is_row_by_row() const;
  template <class F>
  void each_range(int begin, int end, bool with_whole, F f) const;
  Result<bool> find_numbers(const QuantConfig& quant);
  Result<void> find_fp8_or_int8(const QuantConfig& quant);
  Result<void> find_int4(const QuantConfig& quant);
  Result<void> find_int4_zeros(const QuantConfig& quant);
  Result<void> find_mx(const QuantConfig& quant);
  Result<void> find_column_scale();
  bool read_mx(int row_begin, const ScaledRows& out) const;
  float column_scale() const;
  Result<StoredTensor> find_also(const std::string& suffix, StoredType type,
                                 const std::vector<int64_t>& shape);
  Result<void> find_scales(const std::string& suffix,
                           const std::vector<std::vector<int64_t>>& shapes);
  uint8_t zero_at(int64_t row, int64_t group) const;
  int groups() const { return (k_ + format_.group - 1) / format_.group; }

  Kind kind_ = Kind::plain;
  MatrixFormat format_;
  std::string name_, module_;
  int n_ = 0, k_ = 0;
  uint64_t seed_ = 0;
  const WeightSource* source_ = nullptr;
  StoredTensor numbers_;
  std::optional<Nibbles> nibbles_;  // set for int4, mxfp4, nvfp4; else each number is a byte
  StoredTensor scales_;
  int scale_rows_ = 1;  // number of neighbouring rows under one scale
  int64_t scale_row_stride_ = 0, scale_group_stride_ = 0;
  Zeros zeros_ = Zeros::constant;
  StoredTensor zero_bytes_;
  Nibbles zero_nibbles_;
  int zero_add_ = 0;  // added to the stored zero
  std::optional<StoredTensor> order_, shape_;
  std::optional<StoredTensor> column_scale_;  // nvfp4: one number for the matrix
  bool is_divisor_ = false;                   // its reciprocal is the scale
  std::vector<StoredTensor> small_;           // all tensors except the numbers
};

}  // namespace hocket
