// Reads the blocks of GGUF files: as fp32, and as scaled rows (quantize.h), in which they are kept
// in memory:
//
//   Q8_0, Q5_0, IQ4_NL           q8_0: the same values, bit by bit
//   Q4_0                         int4, groups of 32: the same
//   Q4_K, Q5_K, Q6_K             q4_k, q5_k, q6_k: the same
//   MXFP4                        mxfp4: the same
//   IQ4_XS, IQ3_XXS, IQ3_S, IQ2_XXS, IQ1_S, TQ1_0, TQ2_0   four bits that are indices into the
//                                table of iq4, iq3_xxs, iq3_s, iq2, iq1, tq: the same
//   Q3_K, IQ2_XS, IQ2_S, IQ1_M   the same with scales of 16 numbers: q3_k, iq2_s, iq2_s, iq1_m
//   Q4_1, Q5_1, Q2_K             q8_0: quantized again, since their minima have no place there
//
// Formulas: docs/models.md, "GGUF". Private to the room.   Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/weights/quantize.h"
#include "gguf/file.h"

namespace hocket {

// q8_0 in groups of 32: Q8_0 itself, and every type of GGUF that has no format of its own.
inline constexpr MatrixFormat kQ8Format = {WeightFormat::q8_0, kGgufGroup};

// Returns the format in memory; bf16 for types without blocks.
MatrixFormat format_of_blocks(GgufTypeId type);
// Returns true if that format changes no value.
bool keeps_values(GgufTypeId type);

// Returns the format in memory of the matrices that have most of the bytes.
WeightFormat most_blocks(const GgufFile& file);

// Reads `count` numbers, whole blocks. Each is computed in fp32 as the type says, without fma.
void read_blocks(const GgufType& type, const std::byte* from, int64_t count, float* to);

// Reads row `row` of `out`, whose format is that of the type. Returns false if a scale is NaN or
// infinite, or one of MXFP4 that its format refuses.   Types that keeps_values() alone.
[[nodiscard]] bool read_scaled_blocks(const GgufType& type, const std::byte* from,
                                      const ScaledRows& out, int64_t row);

}  // namespace hocket
