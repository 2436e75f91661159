// Blocks of 256 numbers of at most three bits: IQ1_*, IQ2_*, IQ3_*, whose numbers are words of a
// grid, and TQ1_0, TQ2_0, whose numbers are -1, 0 and 1. Each number is an integer times the
// integer scale of its 16, the scale of the block, and the unit of the type. Formulas:
// docs/models.md, "GGUF". Private to the room.   Thread: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "gguf/types.h"

namespace hocket {

struct GridGroup {
  float block_scale = 0, unit = 1;
  // Those of the first 16 numbers, and of the others; different in IQ1_M, IQ2_XS and IQ2_S alone.
  std::array<int8_t, 2> scales;
  std::array<int8_t, 32> numbers;

  float scale(int half) const { return block_scale * unit * static_cast<float>(scales[half]); }
};

// Reads numbers 32 * group to 32 * group + 31 of a block.   0 <= group < 8; `type` is one of iq1_*,
// iq2_*, iq3_* and tq*. Number times scale is exact in fp32.
GridGroup read_grid_group(GgufTypeId type, const std::byte* block, int group);

}  // namespace hocket
