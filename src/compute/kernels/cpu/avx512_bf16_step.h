// The step of AVX512_BF16. VDPBF16PS adds two products to a lane, the upper half's first, each with
// one rounding and without denormals: two FMAs of one chain. So a word holds two neighbours of the
// same sum instead of two neighbouring k:
//
//   packed weights    first line [k | k+1]   second line [k+2 | k+3]     lower | upper half of a
//   word operand of e      [k+2 | k] operand of o      [k+3 | k+1]
//
// This gives the canonical bits; docs/contracts/arithmetic.md, "the canonical product", says why.
#pragma once

#include "compute/kernels/cpu/avx512_step.h"

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

struct Bf16Step {
  using Number = Bf16;
  static constexpr int kDepth = 4;  // k of a step

  static Columns columns(const Bf16* w) {
    const __m512i first = _mm512_loadu_si512(w), second = _mm512_loadu_si512(w + 2 * kPanelN);
    const __m512i swap_halves = _mm512_set4_epi32(0x0d0c0f0e, 0x09080b0a, 0x05040706, 0x01000302);
    constexpr __mmask64 kUpper = 0xcccccccccccccccc, kLower = 0x3333333333333333;
    return {
        _mm512_castsi512_ps(_mm512_mask_shuffle_epi8(second, kUpper, first, swap_halves)),
        _mm512_castsi512_ps(_mm512_mask_shuffle_epi8(first, kLower, second, swap_halves)),
    };
  }
  static __m512 multiply_add(__m512 word, __m512 columns, __m512 sum) {
    return _mm512_dpbf16_ps(sum, __builtin_bit_cast(__m512bh, word),
                            __builtin_bit_cast(__m512bh, columns));
  }
  static void block_words(const Bf16* x, float* words) {
    const __m512i numbers = _mm512_loadu_si512(x);
    _mm512_storeu_si512(words, _mm512_shuffle_epi8(numbers, _mm512_broadcast_i32x4(word_order())));
  }
  static void store_words(Lanes numbers, float* row, int i) {
    const __m256i halves = numbers.upper_halves();
    const __m256i order = _mm256_broadcastsi128_si256(word_order());
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row + i / 2),
                        _mm256_shuffle_epi8(halves, order));
  }

 private:
  // Returns the source bytes of the words of eight numbers: k+2, k, k+3, k+1, and the same of the
  // next four.
  static __m128i word_order() {
    return _mm_setr_epi8(4, 5, 0, 1, 6, 7, 2, 3, 12, 13, 8, 9, 14, 15, 10, 11);
  }
};

}  // namespace
}  // namespace hocket::cpu
