// Rows of one matrix [n, k] of a model, whoever holds it: files in any format of docs/models.md
// ("number formats"), or the seeded generator. Private to the room.
// Thread: open and done_with: the one that loads; reading: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/weights/nibbles.h"
#include "compute/weights/quantize.h"
#include "compute/weights/weight_source.h"
#include "core/model_config.h"

namespace hocket {

// "model.norm" of "model.norm.weight".
std::string module_of(const std::string& name);

// A tensor of the shape given and one of float32, float16, bfloat16.
// Errors: missing_tensor, wrong_shape, unsupported_model (the type).
Result<StoredTensor> find_plain(const WeightSource& source, const std::string& name,
                                const std::vector<int64_t>& shape);

class MatrixReader {
 public:
  enum class Kind : uint8_t { plain, scaled, random };

  // `name` ends in ".weight"; where the files hold the matrix quantized, the names of its tensors
  // follow from it and from the layout of `quant`. Looks at headers only.
  // Errors: as find_plain; unsupported_model: a group or a depth that no kernel has.
  static Result<MatrixReader> open(const WeightSource& source, const QuantConfig& quant,
                                   const std::string& name, int n, int k);
  // Of the format that `quant` gives such a module.
  static Result<MatrixReader> random(uint64_t seed, const QuantConfig& quant,
                                     const std::string& name, int n, int k);

  Kind kind() const { return kind_; }
  const std::string& name() const { return name_; }
  int n() const { return n_; }
  int k() const { return k_; }
  MatrixFormat format() const { return format_; }                // bf16: not quantized
  StoredType stored_type() const { return numbers_.type; }       // of kind plain
  StoredType stored_scale_type() const { return scales_.type; }  // of kind scaled
  int64_t row_bytes() const;                                     // of the files, about

  // What can be wrong inside the data of a quantized matrix: columns out of order.
  // Errors: unsupported_model, wrong_shape.
  Result<void> check_contents() const;

  // Rows from row_begin on. T: float; of kind plain also Bf16. Not of kind scaled.
  template <class T>
  void read(int row_begin, View<T> out) const;
  // Of kind scaled. False where a number is NaN.
  [[nodiscard]] bool read(int row_begin, const ScaledRows& out) const;

  // Rows [begin, end) have been read for good: gives file pages back, those of scales with the last
  // row, and all of them then where a row's numbers lie apart.
  void done_with(int begin, int end) const;

 private:
  enum class Zeros : uint8_t { constant, bytes, nibbles };

  Result<bool> find_numbers(const QuantConfig& quant);
  Result<void> find_fp8_or_int8(const QuantConfig& quant);
  Result<void> find_int4(const QuantConfig& quant);
  Result<void> find_int4_zeros(const QuantConfig& quant);
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
  std::optional<Nibbles> nibbles_;  // int4; else a byte a number
  StoredTensor scales_;
  int scale_rows_ = 1;  // neighbouring rows under one scale
  int64_t scale_row_stride_ = 0, scale_group_stride_ = 0;
  Zeros zeros_ = Zeros::constant;
  StoredTensor zero_bytes_;
  Nibbles zero_nibbles_;
  int zero_add_ = 0;  // to what is stored
  std::optional<StoredTensor> order_, shape_;
  std::vector<StoredTensor> small_;  // all but the numbers
};

}  // namespace hocket
