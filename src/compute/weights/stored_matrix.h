// Where files hold one matrix [n, k] of a model: the tensors of its numbers, scales and zeros, in
// any format of docs/models.md ("number formats"), and how they lie. Only headers are read. Private
// to the room. Thread: the one that loads.
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

// Removes ".weight": returns "model.norm" for "model.norm.weight".
std::string module_of(const std::string& name);

// Finds a tensor of one of the given shapes and of type float32, float16, bfloat16 or rows. Errors:
// missing_tensor, wrong_shape, unsupported_model (the type).
Result<StoredTensor> find_plain(const WeightSource& source, const std::string& name,
                                const std::vector<std::vector<int64_t>>& shapes);

// Returns the format of a quantized module under `quant`. Errors: unsupported_model: a group or a
// depth that no kernel has.
Result<MatrixFormat> quantized_format(const QuantConfig& quant, const std::string& module, int k);

struct StoredMatrix {
  struct Scales {
    StoredTensor tensor;
    int rows = 1;  // number of neighbouring rows under one scale
    int64_t row_stride = 0, group_stride = 0;
  };
  struct Zeros {
    enum class Kind : uint8_t { constant, bytes, nibbles };
    Kind kind = Kind::constant;
    StoredTensor bytes;
    Nibbles nibbles;
    int add = 0;  // added to the stored zero
  };

  bool is_scaled = false;  // it is quantized
  MatrixFormat format;     // bf16: not quantized
  StoredTensor numbers;
  std::optional<Nibbles> nibbles;  // set for int4, mxfp4, nvfp4; else each number is a byte
  Scales scales;
  Zeros zeros;
  std::optional<StoredTensor> order, shape;
  std::optional<StoredTensor> column_scale;  // nvfp4: one number for the matrix
  bool is_divisor = false;                   // its reciprocal is the scale
  std::vector<StoredTensor> small;           // all tensors except the numbers

  bool in_rows() const { return numbers.type == StoredType::rows; }  // they give fp32 only
  int num_groups(int k) const { return (k + format.group - 1) / format.group; }
  // True if the bytes of a row of numbers lie together.
  bool is_row_by_row() const {
    return numbers.row_step == 0 &&
           ((!nibbles && numbers.column_step == 0) ||
            (nibbles && nibbles->along == Nibbles::Along::columns && nibbles->column_stride == 1));
  }
};

struct MatrixName {
  const std::string& name;  // ends in ".weight"
  int n = 0, k = 0;
};
// If the files hold the matrix quantized, the names of its tensors are derived from its name and
// from the layout of `quant`. Errors: those of find_plain() and quantized_format().
Result<StoredMatrix> find_matrix(const WeightSource& source, const QuantConfig& quant,
                                 const MatrixName& matrix);

}  // namespace hocket
