// The step of AVX512_BF16. VDPBF16PS adds two products to a lane, the upper half's first, each with
// one rounding and without denormals: two FMAs of one chain. So 32 bits hold two neighbours of the
// same sum instead of two neighbouring k:
//
//   packed weights   [k | k+1]  [k+2 | k+3]     lower half | upper half of 32 bits
//   operand of e     [k+2 | k]
//   operand of o     [k+3 | k+1]
//
// This gives the canonical bits; docs/contracts/arithmetic.md, "the canonical product", says why.
#pragma once

#include "compute/kernels/cpu/avx512_step.h"

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

struct Bf16Step {
  using Number = Bf16;
  static constexpr int kStepK = 4;  // k of a step

  static ColumnOperands column_operands(const Bf16* w) {
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
  static __m512 multiply_add(__m512 row, __m512 columns, __m512 sum) {
    return _mm512_dpbf16_ps(sum, __builtin_bit_cast(__m512bh, row),
                            __builtin_bit_cast(__m512bh, columns));
  }
  static void prepare_block(const Bf16* x, float* operands) {
    const __m512i numbers = _mm512_loadu_si512(x);
    _mm512_storeu_si512(operands,
                        _mm512_shuffle_epi8(numbers, _mm512_broadcast_i32x4(two_quads_order())));
  }
  static Lanes store_probabilities(Lanes lower, Lanes upper, float* row, int i, Lanes sum) {
    const __m512i numbers = __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(upper.x, lower.x));
    _mm512_storeu_si512(row + i / 2, _mm512_permutexvar_epi16(row_order(), numbers));
    // A lane of sum gets number j, then number j + 16.
    const __m512i in_lanes = _mm512_permutexvar_epi16(lane_order(), numbers);
    return {_mm512_dpbf16_ps(sum.x, __builtin_bit_cast(__m512bh, in_lanes),
                             __builtin_bit_cast(__m512bh, _mm512_set1_epi16(0x3f80)))};
  }

 private:
  // The source of each half of a row's operands: 2, 0, 3, 1 of each quad of k.
  static __m512i row_order() {
    const auto quad = [](int k) { return (k + 1ll) << 48 | (k + 3ll) << 32 | k << 16 | (k + 2); };
    return _mm512_setr_epi64(quad(0), quad(4), quad(8), quad(12), quad(16), quad(20), quad(24),
                             quad(28));
  }
  // The source of each half of a lane: the number j + 16, then j.
  static __m512i lane_order() {
    const auto two = [](int j) { return j << 16 | (j + 16); };
    return _mm512_setr_epi32(two(0), two(1), two(2), two(3), two(4), two(5), two(6), two(7), two(8),
                             two(9), two(10), two(11), two(12), two(13), two(14), two(15));
  }
  // The source bytes of the same for two quads of k.
  static __m128i two_quads_order() {
    return _mm_setr_epi8(4, 5, 0, 1, 6, 7, 2, 3, 12, 13, 8, 9, 14, 15, 10, 11);
  }
};

}  // namespace
}  // namespace hocket::cpu
