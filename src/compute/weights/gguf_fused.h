// Tensors that some files hold in one: gate and up of experts; queries, keys and values. Private to
// the room.   Thread: any.
#pragma once

#include <cstdint>
#include <string>

#include "compute/weights/gguf_names.h"
#include "gguf/file.h"

namespace hocket {

// Rows of a tensor; of each expert's matrix, where it holds those of all experts.
struct GgufFusedPart {
  GgufFile::TensorData found;  // its tensor is null: the file has no such tensor
  std::string name;
  int64_t first = 0, rows = 0;  // rows is below 1 if the tensor's shape does not fit the model
};

// Returns the part that stands for a tensor which the file does not hold by itself.
GgufFusedPart find_fused(const GgufFile& file, const GgufLocation& location);

}  // namespace hocket
