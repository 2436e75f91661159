// The softmax of one block of attention on 512-bit registers: largest scores, probabilities and
// their sums, four rows at a time. A Step stores the probabilities as the operands of its product
// with the values:
//
//   Lanes store_probabilities(Lanes lower, Lanes upper, float* row, int i, Lanes sum)
//     rounds those of the keys i to i + 15 and i + 16 to i + 31 of a row, stores them over its
//     scores, and returns `sum` with both added, the lower first
#pragma once

// False positive of g++ 12 on the undefined registers of its own intrinsics.
#pragma GCC diagnostic ignored "-Wuninitialized"
#include "compute/kernels/arithmetic/attention_block.h"
#include "compute/kernels/arithmetic/math.h"
#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/kernels/cpu/avx512_lanes.h"

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

constexpr int kGroupRows = 16;  // rows of one softmax, a lane each
constexpr int kFolded = 4;      // rows whose lanes are folded together
constexpr int kLine = 64;

// Returns the number of units of 32 keys that hold `keys` keys.
inline int units(int keys) {
  return (keys + kBlockK - 1) / kBlockK;
}

// Folds the lanes of up to four rows by the tree 8-4-2-1 and puts the results, row by row, into the
// lanes of `to` from `row` on.
template <class F>
inline void fold_rows(const Lanes (&x)[kFolded], F&& f, int row, Lanes& to) {
  constexpr int kLower = 0b01000100, kUpper = 0b11101110, kEven = 0b10001000, kOdd = 0b11011101;
  const Lanes a = f(Lanes{_mm512_shuffle_f32x4(x[0].x, x[1].x, kLower)},
                    Lanes{_mm512_shuffle_f32x4(x[0].x, x[1].x, kUpper)});
  const Lanes b = f(Lanes{_mm512_shuffle_f32x4(x[2].x, x[3].x, kLower)},
                    Lanes{_mm512_shuffle_f32x4(x[2].x, x[3].x, kUpper)});
  const Lanes c = f(Lanes{_mm512_shuffle_f32x4(a.x, b.x, kEven)},  // a quarter for each row
                    Lanes{_mm512_shuffle_f32x4(a.x, b.x, kOdd)});
  const Lanes d = f(c, Lanes{_mm512_permute_ps(c.x, 0b01001110)});
  const Lanes e = f(d, Lanes{_mm512_permute_ps(d.x, 0b10110001)});
  const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  to.x = _mm512_mask_permutexvar_ps(to.x, static_cast<__mmask16>(0xfu << row), firsts, e.x);
}
// The same for all rows of a block; lanes_of(row) is called once for each, in order.
template <class LanesOf, class F>
inline Lanes fold_rows(int rows, LanesOf&& lanes_of, F&& f) {
  Lanes folded = Lanes::all(0);
  for (int row = 0; row < rows; row += kFolded) {
    Lanes x[kFolded];
#pragma GCC unroll 4
    for (int r = 0; r < kFolded; ++r) x[r] = row + r < rows ? lanes_of(row + r) : Lanes::all(0);
    fold_rows(x, f, row, folded);
  }
  return folded;
}

inline Lanes largest_scores(const float* s, int visible) {
  Lanes largest = Lanes::all(-math::kInfinity);
  int i = 0;
  for (; i + 16 <= visible; i += 16) largest = max(Lanes::load(s + i), largest);
  if (i < visible) largest = max(Lanes::load(s + i, visible - i, -math::kInfinity), largest);
  return largest;
}

// Turns scores s into the row operands of p = round(exp(s - m)), and of +0 from `visible` up to
// `end`, a multiple of 32. Returns the lanes of sum16(p).
template <class Step>
inline Lanes probabilities(float* s, int visible, int end, float m) {
  const Lanes all_m = Lanes::all(m);
  Lanes sum = Lanes::all(0);
  int i = 0;
  for (; i + kBlockK <= visible; i += kBlockK)
    sum =
        Step::store_probabilities(math::exp_not_large(Lanes::load(s + i) - all_m),
                                  math::exp_not_large(Lanes::load(s + i + 16) - all_m), s, i, sum);
  const auto some = [&](int at) {
    const int n = at < visible ? visible - at : 0, lanes = n < 16 ? n : 16;
    return math::exp_not_large(Lanes::load(s + at, lanes, m) - all_m).keep(lanes, 0);
  };
  for (; i < end; i += kBlockK) sum = Step::store_probabilities(some(i), some(i + 16), s, i, sum);
  return sum;
}

// Caps the scores of the rows, and gives keys before a row's first the score -inf, which makes
// their probabilities +0.
template <class T>
void cap_and_hide(const BlockRows<T>& b) {
  for (int r = 0; r < b.rows; ++r) {
    float* const s = b.scores + r * kSoftmaxBlock;
    if (b.soft_cap > 0)
      for (int i = b.hidden[r] / kPanelN * kPanelN; i < b.visible[r]; i += kPanelN)
        math::soft_cap(Lanes::load(s + i), Lanes::all(b.soft_cap)).store(s + i);
    for (int i = 0; i < b.hidden[r]; ++i) s[i] = -math::kInfinity;
  }
}

// Updates m, l and alpha of all rows; scores become row operands of probabilities, for the product
// of kGroup rows at a time with the values.
template <class Step, int kGroup>
void softmax(const BlockRows<typename Step::Number>& b, float* alpha) {
  const auto scores = [&](int row) { return b.scores + row * kSoftmaxBlock; };
  const Lanes largest = fold_rows(
      b.rows, [&](int row) { return largest_scores(scores(row), b.visible[row]); },
      [](Lanes x, Lanes y) { return max(x, y); });
  const Lanes before = Lanes::load(b.m, b.rows, 0), after = max(before, largest);
  const Lanes factor = math::exp_not_large(before - after);
  alignas(kLine) float m[kGroupRows];
  after.store(m);
  after.store(b.m, b.rows);
  factor.store(alpha);
  const Lanes sum = fold_rows(
      b.rows,
      [&](int row) {
        const int last = row / kGroup * kGroup + kGroup - 1;
        const int end = units(b.visible[last < b.rows ? last : b.rows - 1]) * kBlockK;
        return probabilities<Step>(scores(row), b.visible[row], end, m[row]);
      },
      [](Lanes x, Lanes y) { return x + y; });
  fma(Lanes::load(b.l, b.rows, 0), factor, sum).store(b.l, b.rows);
}

}  // namespace
}  // namespace hocket::cpu
