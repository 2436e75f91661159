// Seeded random weights for --load-format dummy. The name and shape of a tensor decide its values,
// so order and thread count do not. Matrices are about N(0, 0.05), norms near 1.
#pragma once

#include <cstdint>
#include <string_view>

#include "compute/tensor/view.h"

namespace hocket {

// Fills `out` with rows [row_begin, row_begin + out.rows) of the tensor called `name`.
void random_rows(uint64_t seed, std::string_view name, int64_t row_begin, View<float> out);

}  // namespace hocket
