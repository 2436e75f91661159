// The source of named tensors: one file of safetensors, or a folder of them. Random weights have no
// source (random_weights.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/tensor/bf16.h"

namespace hocket {

class StoredRows;

enum class StoredType : uint8_t {
  f32,
  f16,
  bf16,
  i64,
  i32,
  i16,
  i8,
  u8,
  boolean,
  f64,
  f8_e4m3,
  f8_e5m2,
  f8_e8m0,
  rows,  // StoredTensor::rows reads them
  other
};
std::string_view stored_type_name(StoredType t);
int stored_type_size(StoredType t);  // size in bytes; `rows` and `other` are bugs

struct StoredTensor {
  StoredType type = StoredType::f32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;  // mapped; valid as long as the source lives
  int64_t bytes = 0;
  // 0: row after row. Else the data holds columns: element (row, column) is number
  // column * column_step + row * row_step of it. Element i of a vector is number i * row_step.
  int64_t column_step = 0;
  // Numbers from the beginning of a row to that of the next; 0: no gap. With columns: 1 without
  // gap.
  int64_t row_step = 0;
  std::shared_ptr<const StoredRows> rows;  // for type rows, which has no `data`
};

// Returns the bytes of the files that hold a tensor.
std::vector<std::span<const std::byte>> stored_bytes(const StoredTensor& tensor);

// Converts `count` numbers of type f32, f16 or bf16, which may be unaligned, to T: Bf16 (nearest
// even) or float.
template <class T>
void convert_stored(StoredType type, const std::byte* from, int64_t count, T* to);

// Thread: any (const).
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Errors: missing_tensor, with its name, the folder and the nearest name that exists.
  virtual Result<StoredTensor> find(std::string_view name) const = 0;
  virtual bool has(std::string_view name) const = 0;
  virtual std::vector<std::string> names() const = 0;
  // Returns the names that find() never gave; empty if the source does not note them
  // (tracked_weight_source.h).
  virtual std::vector<std::string> unread() const { return {}; }
  // Has the kernel read the file pages of a tensor that will be packed soon, without waiting.
  virtual void will_read(const StoredTensor&) const {}
  // Lets the kernel drop the file pages of a tensor that has been packed.
  virtual void done_with(const StoredTensor&) const {}
  // Returns a hash of the files' names, sizes, modification times, headers and samples of their
  // contents, independent of their folder: it differs if the contents differ. Empty if the source
  // has no files.
  virtual std::optional<uint64_t> identity() const { return std::nullopt; }
};

}  // namespace hocket
