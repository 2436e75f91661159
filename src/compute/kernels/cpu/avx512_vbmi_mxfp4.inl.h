// mxfp4 by VBMI, in place of Mx<mxfp4> (avx512_mx.inl.h): a number of four bits is looked up as a
// bf16, and its scale, a power of two, is added to the exponent. The bits are those of the product
// with the scale, since that is a bf16 exactly (arithmetic/packed_weight.h).
#pragma once

#include "compute/kernels/cpu/avx512_mx.inl.h"

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

// Bit positions for a multishift. It moves number `lower` of a column, 0 to 7, to the lower half of
// its 32 bits and number `upper` to the upper half: the magnitude to the half's lowest bits, the
// sign to its highest one.
struct Mxfp4Shifts {
  alignas(kLine) uint8_t bits[kLine];
};
constexpr Mxfp4Shifts shifts_of(int lower, int upper) {
  Mxfp4Shifts shifts = {};
  for (int half = 0; half < 2 * kPanelN; ++half) {
    const int bit = half / 2 % 2 * 32 + 4 * (half % 2 == 0 ? lower : upper);
    shifts.bits[2 * half] = static_cast<uint8_t>(bit);
    shifts.bits[2 * half + 1] = static_cast<uint8_t>((bit + 60) % 64);
  }
  return shifts;
}
// The shifts of k and k + 1 in one operand, and of the two operands of Bf16Step: k + 2 and k, k + 3
// and k + 1.
constexpr Mxfp4Shifts kMxfp4Pairs[4] = {shifts_of(0, 1), shifts_of(2, 3), shifts_of(4, 5),
                                        shifts_of(6, 7)};
constexpr Mxfp4Shifts kMxfp4Bf16Steps[4] = {shifts_of(2, 0), shifts_of(3, 1), shifts_of(6, 4),
                                            shifts_of(7, 5)};

struct VbmiMxfp4 {
  using Factors = __m512i;
  static constexpr int kGroups = 1, kQuadsAGroup = kQuads, kBytes = kTileElements / 2;
  static constexpr bool kScalesSums = false;

  // The table has magnitudes plus this bias, so that factors(), which are subtracted from them, are
  // never negative. Zero has no bias in the table, and the subtraction saturates it to zero.
  static constexpr int kBias = 0x4000;

  // Returns the subtrahends of sixteen columns, in both halves of a column: the bias minus the
  // scale's exponent, in the place of a bf16's; for a scale of zero the largest number.
  static __m512i factors(const std::byte* scales) {
    const __m512i stored =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
    const __mmask16 zero = _mm512_testn_epi32_mask(stored, stored);
    const __m512i less = _mm512_mask_mov_epi32(
        _mm512_sub_epi32(_mm512_set1_epi32(kBias + (127 << 7)), _mm512_slli_epi32(stored, 7)), zero,
        _mm512_set1_epi32(0xffff));
    return _mm512_or_si512(less, _mm512_slli_epi32(less, 16));
  }

  static __m512i look_up(__m512i eights, const Mxfp4Shifts& shifts, __m512i factors) {
    // 0, 0.5, 1, 1.5, 2, 3, 4, 6 four times: the index is the lowest five bits, of which the
    // magnitude has three.
    constexpr uint64_t kSmall = 0x7fc0'7f80'7f00'0000, kLarge = 0x80c0'8080'8040'8000;
    const __m512i magnitudes = _mm512_broadcast_i32x4(_mm_set_epi64x(kLarge, kSmall));
    const __m512i shifted = _mm512_multishift_epi64_epi8(_mm512_load_si512(shifts.bits), eights);
    const __m512i scaled =
        _mm512_subs_epu16(_mm512_permutexvar_epi16(shifted, magnitudes), factors);
    constexpr int kOrAnd = 0xf8;
    return _mm512_ternarylogic_epi32(scaled, shifted, _mm512_set1_epi16(-0x8000), kOrAnd);
  }

  template <class Step>
  static QuadOperands<Step> operands(const std::byte* tile, int quad, __m512i factors) {
    static_assert(Step::kStepK == 4, "two k a step take as many operations here as in Mx<mxfp4>");
    const __m512i eights = _mm512_loadu_si512(tile + quad / 2 * kLine);
    const Mxfp4Shifts* const shifts = kMxfp4Bf16Steps + quad % 2 * 2;
    return {{{_mm512_castsi512_ps(look_up(eights, shifts[0], factors)),
              _mm512_castsi512_ps(look_up(eights, shifts[1], factors))}}};
  }
};

}  // namespace
}  // namespace hocket::cpu
