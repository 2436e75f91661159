// Loads the numbers, zeros, scales and minima of a group, sixteen columns at a time, and quads of
// rows.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "compute/kernels/arithmetic/packed_weight.h"

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

// Returns four numbers of a row in all lanes.
inline __m512i row_quad(const int8_t* x) {
  int32_t quad;
  std::memcpy(&quad, x, sizeof quad);
  return _mm512_set1_epi32(quad);
}
inline __m512i load_zeros(const uint8_t* zeros) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(zeros)));
}
// `at` is the index of the first of the sixteen among all scales.
template <WeightFormat kFormat>
inline __m512 load_scales(const std::byte* scales, int64_t at) {
  scales += at * scale_size(kFormat);
  if constexpr (scale_size(kFormat) == 4) return _mm512_loadu_ps(scales);
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales)));
}

inline __m512 load_f16(const uint16_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
// The scales and minima of one group of q4_k or q5_k: float16 times an integer, exactly.
struct GroupScales {
  __m512 scale, min;
};
inline GroupScales load_group_scales(const std::byte* panel_scales, int group) {
  const auto& block = reinterpret_cast<const Q4kScales*>(panel_scales)[group / kScaleBlockGroups];
  const auto times = [](const uint16_t* halves, const uint8_t* integers) {
    return _mm512_mul_ps(load_f16(halves), _mm512_cvtepi32_ps(load_zeros(integers)));
  };
  const int i = group % kScaleBlockGroups;
  return {times(block.d, block.scales[i]), times(block.dmin, block.mins[i])};
}
// The scales of one group of a format with a table.
inline __m512 load_table_scales(const std::byte* panel_scales, int group, float unit) {
  const auto& block = reinterpret_cast<const TableScales*>(panel_scales)[group / kScaleBlockGroups];
  const int8_t* const integers = block.scales[group % kScaleBlockGroups];
  const __m512i integer =
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(integers)));
  return _mm512_mul_ps(_mm512_mul_ps(load_f16(block.d), _mm512_set1_ps(unit)),
                       _mm512_cvtepi32_ps(integer));
}
// Returns the table four times, as VPSHUFB wants it, with `add` added to each number.
inline __m512i load_table(const NumberTable& table, uint8_t add) {
  const __m128i numbers = _mm_load_si128(reinterpret_cast<const __m128i*>(table.numbers));
  // gcc 12 warns of the plain broadcast, whose source it takes for undefined.
  return _mm512_maskz_broadcast_i32x4(0xffff,
                                      _mm_add_epi8(numbers, _mm_set1_epi8(static_cast<char>(add))));
}
// One body serves all formats with a table, and another those with scales of 16 numbers.
constexpr WeightFormat kTable = WeightFormat::iq4, kTableOf16 = WeightFormat::q3_k;

// The factors of one group with scales of 16 numbers.
struct ScalesOf16Group {
  __m512 scales[2], factor;  // integers; d * unit
};
inline ScalesOf16Group load_scales_of_16(const std::byte* panel_scales, int group, float unit) {
  const auto& block = reinterpret_cast<const ScalesOf16*>(panel_scales)[group / kScaleBlockGroups];
  const auto integers = [&](int half) {
    const int8_t* const from = block.scales[group % kScaleBlockGroups * 2 + half];
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  };
  return {{integers(0), integers(1)}, _mm512_mul_ps(load_f16(block.d), _mm512_set1_ps(unit))};
}

// Returns the stored numbers of a quad, 0..15 of a block, a byte each; those of a table are looked
// up.
template <WeightFormat kFormat>
inline __m512i numbers_of_quad(const std::byte* tile, int quad, __m512i table) {
  if constexpr (tile_bytes(kFormat) == tile_bytes(WeightFormat::int8))
    return _mm512_loadu_si512(tile + quad * kNibbleLineBytes);
  constexpr int kUpperBits = num_upper_bits(kFormat), kLowerLines = lower_lines_per_part(kFormat);
  const int in_part = quad % kLowerLines;
  const bool high = quad >= kNibbleLines;
  const std::byte* const part =
      tile + quad % kNibbleLines / kLowerLines * lines_per_part(kFormat) * kNibbleLineBytes;
  const __m512i line = _mm512_loadu_si512(part + in_part * kNibbleLineBytes);
  const __m512i numbers =
      _mm512_and_si512(high ? _mm512_srli_epi16(line, 4) : line, _mm512_set1_epi8(15));
  if constexpr (has_table(kFormat)) return _mm512_shuffle_epi8(table, numbers);
  if constexpr (kUpperBits == 0) return numbers;
  const __m512i upper = _mm512_loadu_si512(part + kLowerLines * kNibbleLineBytes);
  const int shift = 4 - kUpperBits * (2 * in_part + (high ? 1 : 0));
  const __m512i shifted = shift >= 0 ? _mm512_slli_epi16(upper, static_cast<unsigned>(shift))
                                     : _mm512_srli_epi16(upper, static_cast<unsigned>(-shift));
  return _mm512_or_si512(numbers,
                         _mm512_and_si512(shifted, _mm512_set1_epi8(((1 << kUpperBits) - 1) << 4)));
}

}  // namespace
}  // namespace hocket::cpu
