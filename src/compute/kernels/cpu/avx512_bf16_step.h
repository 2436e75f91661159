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
    const __m512i first = _mm512_loadu_si512(w);
    __m512i second = _mm512_loadu_si512(w + 2 * kPanelN);
    asm("" : "+v"(second));  // or gcc loads it twice
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
  static Lanes store_words(Lanes lower, Lanes upper, float* row, int i, Lanes sum) {
    const __m512i numbers = __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(upper.x, lower.x));
    _mm512_storeu_si512(row + i / 2, _mm512_permutexvar_epi16(words_of_row(), numbers));
    // A lane of sum gets number j, then number j + 16.
    const __m512i pairs = _mm512_permutexvar_epi16(pairs_of_lanes(), numbers);
    return {_mm512_dpbf16_ps(sum.x, __builtin_bit_cast(__m512bh, pairs),
                             __builtin_bit_cast(__m512bh, _mm512_set1_epi16(0x3f80)))};
  }

 private:
  // The source of each half of a word: of four neighbouring k, 2, 0, 3, 1.
  static __m512i words_of_row() {
    const auto four = [](int k) { return (k + 1ll) << 48 | (k + 3ll) << 32 | k << 16 | (k + 2); };
    return _mm512_setr_epi64(four(0), four(4), four(8), four(12), four(16), four(20), four(24),
                             four(28));
  }
  // The source of each half of a lane: the number j + 16, then j.
  static __m512i pairs_of_lanes() {
    const auto two = [](int j) { return j << 16 | (j + 16); };
    return _mm512_setr_epi32(two(0), two(1), two(2), two(3), two(4), two(5), two(6), two(7), two(8),
                             two(9), two(10), two(11), two(12), two(13), two(14), two(15));
  }
  // Returns the source bytes of the words of eight numbers: k+2, k, k+3, k+1, and the same of the
  // next four.
  static __m128i word_order() {
    return _mm_setr_epi8(4, 5, 0, 1, 6, 7, 2, 3, 12, 13, 8, 9, 14, 15, 10, 11);
  }
};

}  // namespace
}  // namespace hocket::cpu
