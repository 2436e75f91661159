// A step of the canonical product (arithmetic/product.h) on 512-bit registers: some neighbouring k,
// which sixteen columns add to their sums e and o. The product, attention and fp8 are written once
// for any step:
//
//   FmaStep<T>  two k, widened to fp32: an FMA for e, an FMA for o
//   Bf16Step    four k: a VDPBF16PS for e, a VDPBF16PS for o (avx512_bf16_step.h)
//
// Each multiply_add takes a row operand and a column operand. A row operand is 32 bits, which are
// broadcast: those of a row's k-block are in the order [step][e, o]. A column operand is a
// register with 32 bits for each of sixteen columns.
#pragma once

#include <immintrin.h>

#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/kernels/cpu/avx512_lanes.h"

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

// The column operands of one step: what is added to the sums e, and to the sums o.
struct ColumnOperands {
  __m512 e, o;
};

template <class Step>
constexpr int kSteps = kBlockK / Step::kStepK;  // steps of a k-block
template <class Step>
constexpr int kRowOperands = 2 * kSteps<Step>;  // those of a row's k-block

// The column operands of a quad of k, which is one step or two.
constexpr int kQuads = kBlockK / 4;  // in a k-block
template <class Step>
struct QuadOperands {
  static constexpr int kSteps = 4 / Step::kStepK;
  ColumnOperands steps[kSteps];
};

template <class T>
struct FmaStep {
  using Number = T;
  static constexpr int kStepK = 2;  // k of a step

  // Returns the operands of the packed weights from w on.
  static ColumnOperands column_operands(const Bf16* w) {
    return column_operands(_mm512_loadu_si512(w));
  }
  static ColumnOperands column_operands(__m512i pairs) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-0x10000)))};
  }
  static ColumnOperands column_operands(const float* w) {
    const __m512 low = _mm512_loadu_ps(w), high = _mm512_loadu_ps(w + 16);
    const __m512i evens =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odds =
        _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return {_mm512_permutex2var_ps(low, evens, high), _mm512_permutex2var_ps(low, odds, high)};
  }
  static __m512 multiply_add(__m512 row, __m512 columns, __m512 sum) {
    return _mm512_fmadd_ps(row, columns, sum);
  }
  // Turns one k-block of a row into row operands.
  static void prepare_block(const T* x, float* operands) {
    for (int i = 0; i < kBlockK; i += 16) Lanes::load(x + i).store(operands + i);
  }
  // Rounds 32 probabilities to T and stores their row operands; i: the first one's k in the row.
  // Returns `sum` with both registers added to it, the lower first.
  static Lanes store_probabilities(Lanes lower, Lanes upper, float* row, int i, Lanes sum) {
    const Lanes a = rounded(lower), b = rounded(upper);
    a.store(row + i);
    b.store(row + i + 16);
    return (sum + a) + b;
  }

 private:
  static Lanes rounded(Lanes x) { return sizeof(T) == sizeof(float) ? x : rounded_to_bf16(x); }
};

}  // namespace
}  // namespace hocket::cpu
