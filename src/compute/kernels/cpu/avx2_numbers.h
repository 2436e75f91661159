// Loads numbers of fewer than eight bits and scales, eight columns at a time.
#pragma once

#include <immintrin.h>

#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/kernels/cpu/avx2_registers.h"

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

inline __m256i load_words(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

// Returns the numbers in the low or high halves of bytes, a byte each.
template <bool kHigh>
inline __m256i nibbles_of(__m256i bytes) {
  return _mm256_and_si256(kHigh ? _mm256_srli_epi16(bytes, 4) : bytes, _mm256_set1_epi8(15));
}

// Returns the stored numbers, a byte each, of quad 0..7 of the low or high halves of a block;
// columns 8 * h and on.
template <WeightFormat kFormat, bool kHigh>
inline __m256i numbers_of_quad(const std::byte* tile, int quad, int h) {
  constexpr int kUpperBits = num_upper_bits(kFormat), kLowerLines = lower_lines_per_part(kFormat);
  const int in_part = quad % kLowerLines;
  const std::byte* const part =
      tile + quad / kLowerLines * lines_per_part(kFormat) * kNibbleLineBytes + h * 4 * kLanes;
  const __m256i numbers = nibbles_of<kHigh>(load_words(part + in_part * kNibbleLineBytes));
  if constexpr (kUpperBits == 0) return numbers;
  const __m256i upper = load_words(part + kLowerLines * kNibbleLineBytes);
  const int shift = 4 - kUpperBits * (2 * in_part + (kHigh ? 1 : 0));
  const __m256i shifted =
      shift >= 0 ? _mm256_slli_epi16(upper, shift) : _mm256_srli_epi16(upper, -shift);
  return _mm256_or_si256(numbers,
                         _mm256_and_si256(shifted, _mm256_set1_epi8(((1 << kUpperBits) - 1) << 4)));
}

inline __m256 load_f16(const uint16_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

}  // namespace
}  // namespace hocket::cpu
