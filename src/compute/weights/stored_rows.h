// Rows of a stored matrix that are not plain numbers row after row.   Thread: any (const).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "compute/weights/quantize.h"

namespace hocket {

class StoredRows {
 public:
  virtual ~StoredRows() = default;
  virtual std::string_view type_name() const = 0;  // for messages: "Q4_K"
  // The format in which the rows are kept in memory; bf16: not under scales.
  virtual MatrixFormat format() const { return {}; }
  virtual int64_t columns() const = 0;
  // Reads rows from row_begin on, in fp32.
  virtual void read(int64_t row_begin, View<float> out) const = 0;
  // Reads them in format(), if it is scaled. Returns false if a scale is not finite or is refused.
  [[nodiscard]] virtual bool read_scaled(int64_t /*row_begin*/, const ScaledRows& /*out*/) const {
    return false;
  }
  // Returns the bytes that hold the rows [begin, end), and perhaps those of neighbours.
  virtual std::vector<std::span<const std::byte>> bytes_of(int64_t begin, int64_t end) const = 0;
};

}  // namespace hocket
