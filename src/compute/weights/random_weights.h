// Seeded random weights for --load-format dummy: the name and shape of each tensor decide its
// values, so that order and thread count do not. Matrices N(0, 0.05)-like, norms near 1.
#pragma once

#include <cstdint>
#include <string_view>

namespace hocket {

// Fills rows [row_begin, row_begin + rows) of a [*, cols] tensor called `name`.
void random_rows(uint64_t seed, std::string_view name, int64_t row_begin, int64_t rows,
                 int64_t cols, float* out);

}  // namespace hocket
