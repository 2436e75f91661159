// Code that the products on 256-bit registers share.
#pragma once

#include <immintrin.h>

#include "compute/tensor/bf16.h"
#include "compute/tensor/view.h"

namespace hocket::cpu {

inline constexpr int kLanes = 8;         // fp32 numbers in one register
inline constexpr int kRegisterRows = 6;  // rows of x whose sums with a panel stay in registers

namespace {

// Widens one k-block of a row.
inline void widen_block(const Bf16* x, float* to) {
  for (int i = 0; i < kBlockK; i += kLanes) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
    const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), wide);
  }
}

// Keeps gcc from moving work on `sum` across this point. It would otherwise run several
// multiplications first, and their results would push sums out of the registers.
template <class V>
inline void keep_in_register(V& sum) {
  asm volatile("" : "+x"(sum));
}

}  // namespace
}  // namespace hocket::cpu
