// Blocks of 256 numbers of Q2_K to Q6_K. Formulas: docs/models.md, "GGUF". Private to the room.
// Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/weights/gguf_grids.h"
#include "compute/weights/quantize.h"
#include "gguf/types.h"

namespace hocket {

// Reads a block in fp32.   Q2_K, Q4_K, Q5_K, Q6_K.
void read_k_block(GgufTypeId type, const std::byte* from, float* to);

// Returns true for q4_k, q5_k and q6_k.
constexpr bool is_k_format(WeightFormat f) {
  return has_minima(f) || f == WeightFormat::q6_k;
}
// Reads row `row` of `out`, in q4_k, q5_k or q6_k, the format of the type. Returns false if a scale
// is NaN or infinite.
[[nodiscard]] bool read_k_row(const GgufType& type, const std::byte* from, const ScaledRows& out,
                              int64_t row);

// Reads numbers 32 * group to 32 * group + 31 of a block of Q3_K.   0 <= group < 8.
GridGroup read_q3_k_group(const std::byte* block, int group);

}  // namespace hocket
