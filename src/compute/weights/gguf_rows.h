// Rows in GGUF files: blocks row after row, and kv_b_proj that is split into two tensors. Private
// to the room.   Thread: any (const).
#pragma once

#include <memory>
#include <vector>

#include "compute/weights/stored_rows.h"
#include "gguf/types.h"

namespace hocket {

// A matrix, or one expert of a stack of matrices.
struct GgufMatrix {
  const GgufType* type = nullptr;
  const std::byte* data = nullptr;  // null if only the header of the file is there
  int64_t rows = 0, k = 0;

  int64_t row_bytes() const { return k / type->block * type->bytes; }
  int64_t bytes() const { return rows * row_bytes(); }
  // Makes row `count` the first. Without data, as in a plan, there is nothing to skip.
  void skip_rows(int64_t count) {
    if (data != nullptr) data += count * row_bytes();
  }
};

// The change that the converter made to the numbers of a vector.
enum class GgufChange : uint8_t { none, added_one, negative_exponential };

std::shared_ptr<const StoredRows> gguf_rows(const GgufMatrix& matrix,
                                            GgufChange change = GgufChange::none);

// kv_b_proj [heads * (nope + value), rank] from keys [heads, rank, nope] and values [heads, value,
// rank]. Reading is fastest by whole heads.
std::shared_ptr<const StoredRows> gguf_latent_rows(const GgufMatrix& keys, const GgufMatrix& values,
                                                   int64_t heads);

// Rows of several matrices with the same columns, run after run.
struct GgufRun {
  size_t matrix = 0;
  int64_t row = 0, rows = 0;
};
std::shared_ptr<const StoredRows> gguf_gathered_rows(
    std::vector<std::shared_ptr<const StoredRows>> matrices, std::vector<GgufRun> runs);

// A matrix whose columns are in runs of equal width: run i is run order[i] of the file.
std::shared_ptr<const StoredRows> gguf_gathered_columns(std::shared_ptr<const StoredRows> matrix,
                                                        std::vector<int64_t> order);
// Returns the format in memory of such a matrix, which is `own` with the columns of the file.
MatrixFormat gguf_gathered_format(MatrixFormat own, int64_t width);

}  // namespace hocket
