// Loads the zeros, scales and minima of a group, sixteen columns at a time.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "compute/kernels/arithmetic/packed_weight.h"

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

inline __m512i load_zeros(const uint8_t* zeros) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(zeros)));
}
// `at` is the index of the first of the sixteen among all scales.
template <WeightFormat kFormat>
inline __m512 load_scales(const std::byte* scales, int64_t at) {
  scales += at * scale_size(kFormat);
  if constexpr (kFormat != WeightFormat::int4) return _mm512_loadu_ps(scales);
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales)));
}

// The scales or minima of one group of q4_k: float16 times an integer, exactly.
inline __m512 load_block_scales(const uint16_t* halves, const uint8_t* integers) {
  const __m512 half = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
  return _mm512_mul_ps(half, _mm512_cvtepi32_ps(load_zeros(integers)));
}
struct GroupScales {
  __m512 scale, min;
};
inline GroupScales load_group_scales(const std::byte* panel_scales, int group) {
  const auto& block =
      reinterpret_cast<const BlockScales*>(panel_scales)[group / BlockScales::kGroups];
  const int i = group % BlockScales::kGroups;
  return {load_block_scales(block.scale, block.scales[i]),
          load_block_scales(block.min, block.mins[i])};
}

}  // namespace
}  // namespace hocket::cpu
