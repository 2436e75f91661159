// Takes back what converters change: norms with 1 added (qwen3next, qwen35, qwen35moe, step35), and
// in delta nets (the first three and kimi-linear) -exp(A_log), columns of projections apart, value
// heads in another order. Private to the room.   Thread: any.
#pragma once

#include <optional>
#include <string_view>

#include "compute/weights/weight_source.h"
#include "gguf/file.h"

namespace hocket {

// Returns the tensor of a folder; empty if it is the same in the file, or the file is of another
// architecture. Errors: missing_tensor, wrong_shape.
std::optional<Result<StoredTensor>> find_changed(const GgufFile& file, std::string_view name);

// Returns the width of the runs of columns that change places in the file's tensor `name`; empty if
// all stay.
std::optional<int64_t> gathered_width(const GgufFile& file, std::string_view name);

}  // namespace hocket
