// One softmax block of attention, for any step (avx512_step.h): blocks of four rows by two panels,
// so that there are 16 sums and each load serves two to four of them.
#pragma once

// False positive of g++ 12 on the undefined registers of its own intrinsics.
#pragma GCC diagnostic ignored "-Wuninitialized"
#include "compute/kernels/arithmetic/attention_block.h"
#include "compute/kernels/cpu/avx512_softmax.inl.h"
#include "compute/kernels/cpu/avx512_step.h"
#include "compute/kernels/cpu/row_counts.h"

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

constexpr int kRows = 4;

// Rows of operands, or panels of weights, `stride` elements apart.
template <class T>
struct Strided {
  const T* data;
  int64_t stride;
};

// The sums for R rows and P panels.
template <int R, int P>
struct Sums {
  __m512 c[R][P];
};

// Adds one k-block: c += e + o. For each pair of k it prefetches kLines of the two lines from
// `fetch` on.
template <class Step, int R, int P, int kLines>
[[gnu::always_inline]] inline void add_block(Strided<float> x, Strided<typename Step::Number> w,
                                             const char* fetch, Sums<R, P>& to) {
  // One register each, or gcc adds every step to every stride.
  const float* row[R];
  const typename Step::Number* panel[P];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    row[r] = x.data + r * x.stride;
    asm("" : "+r"(row[r]));
  }
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
    panel[p] = w.data + p * w.stride;
    asm("" : "+r"(panel[p]));
  }
  __m512 e[R][P], o[R][P];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p) e[r][p] = o[r][p] = _mm512_setzero_ps();
#pragma GCC unroll 16
  for (int step = 0; step < kSteps<Step>; ++step) {
#pragma GCC unroll 2
    for (int pair = 0; pair < Step::kStepK / 2; ++pair, fetch += 2 * kLine) {
      if constexpr (kLines > 0) _mm_prefetch(fetch, _MM_HINT_T1);
      if constexpr (kLines > 1) _mm_prefetch(fetch + kLine, _MM_HINT_T1);
    }
    ColumnOperands b[P];
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p)
      b[p] = Step::column_operands(panel[p] + step * Step::kStepK * kPanelN);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const float* const a = row[r] + 2 * step;
      const __m512 row_e = _mm512_set1_ps(a[0]), row_o = _mm512_set1_ps(a[1]);
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) {
        e[r][p] = Step::multiply_add(row_e, b[p].e, e[r][p]);
        o[r][p] = Step::multiply_add(row_o, b[p].o, o[r][p]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p)
      to.c[r][p] = _mm512_add_ps(to.c[r][p], _mm512_add_ps(e[r][p], o[r][p]));
}

// Returns the byte offset of the first line to prefetch. A single group of rows prefetches every
// line; of several groups, the first two prefetch every second line each.
inline int first_line(int row) {
  return row == 0 ? 0 : kLine;
}

// scores = (q . key) * scale, for R rows from `row` on and the keys of one unit.
template <class Step, int R, int kLines>
void score(const BlockRows<typename Step::Number>& b, int row, int unit) {
  const float* q = b.q + row * b.q_stride;
  const typename Step::Number* w = b.keys[unit];
  const char* fetch = reinterpret_cast<const char*>(b.values[unit]) + first_line(row);
  Sums<R, 2> sums;
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums.c[r][0] = sums.c[r][1] = _mm512_setzero_ps();
  for (int k = 0; k < b.k_blocks;
       ++k, q += kRowOperands<Step>, w += kTileElements, fetch += kBlockK * kLine)
    add_block<Step, R, 2, kLines>({q, b.q_stride}, {w, b.key_stride}, fetch, sums);
  const __m512 scale = _mm512_set1_ps(b.scale);
  float* const y = b.scores + row * kSoftmaxBlock + unit * kBlockK;
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int p = 0; p < 2; ++p)
      _mm512_storeu_ps(y + r * kSoftmaxBlock + p * kPanelN, _mm512_mul_ps(sums.c[r][p], scale));
}

// o = o * alpha, then the k-blocks of PV are added: R rows from `row` on, P panels from `panel` on.
template <class Step, int R, int P, int kLines>
void add_values(const BlockRows<typename Step::Number>& b, const float* alpha, int row, int panel) {
  const int64_t v_dim = int64_t{b.v_panels} * kPanelN;
  float* const o = b.o + row * v_dim + panel * kPanelN;
  Sums<R, P> sums;
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int p = 0; p < P; ++p)
      sums.c[r][p] = _mm512_mul_ps(_mm512_loadu_ps(o + r * v_dim + p * kPanelN),
                                   _mm512_set1_ps(alpha[row + r]));
  const int first = b.hidden[row] / kBlockK, count = units(b.visible[row + R - 1]);
  const float* p = b.scores + row * kSoftmaxBlock + first * kRowOperands<Step>;
  for (int unit = first; unit < count; ++unit, p += kRowOperands<Step>) {
    const char* fetch = nullptr;
    if constexpr (kLines > 0)
      fetch = reinterpret_cast<const char*>(b.next_keys[unit]) + panel * kPanelN * kLine +
              first_line(row);
    add_block<Step, R, P, kLines>(
        {p, kSoftmaxBlock}, {b.values[unit] + panel * b.value_stride, b.value_stride}, fetch, sums);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int i = 0; i < P; ++i) _mm512_storeu_ps(o + r * v_dim + i * kPanelN, sums.c[r][i]);
}

// kLines: how many of each two lines a group of rows prefetches.
template <class Step, int kLines>
void run(const BlockRows<typename Step::Number>& b) {
  const int count = units(b.visible[b.rows - 1]);
  const int fetching = kLines == 0 ? 0 : kLines == 1 ? 2 * kRows : kRows;  // rows below it prefetch
  for (int unit = 0; unit < count; ++unit)
    for_each_rows<kRows>(b.rows, [&](auto rows, int row) {
      if (unit * kBlockK >= b.visible[row + rows() - 1]) return;
      if ((unit + 1) * kBlockK <= b.hidden[row]) return;
      row < fetching ? score<Step, rows(), kLines>(b, row, unit)
                     : score<Step, rows(), 0>(b, row, unit);
    });
  if (b.soft_cap > 0 || b.hidden[b.rows - 1] > 0) cap_and_hide(b);
  alignas(kLine) float alpha[kGroupRows];
  softmax<Step, kRows>(b, alpha);
  const auto add = [&](auto panels, int panel) {
    for_each_rows<kRows>(b.rows, [&](auto rows, int row) {
      row < fetching ? add_values<Step, rows(), panels(), kLines>(b, alpha, row, panel)
                     : add_values<Step, rows(), panels(), 0>(b, alpha, row, panel);
    });
  };
  for_each_rows<2>(b.v_panels, add);
}

template <class Step>
void block(const BlockRows<typename Step::Number>& b) {
  if (b.next_keys == nullptr) return run<Step, 0>(b);
  b.rows > kRows ? run<Step, 1>(b) : run<Step, 2>(b);
}

template <class Step>
void prepare_queries(const typename Step::Number* q, int64_t n, float* operands) {
  for (int64_t i = 0; i < n; i += kBlockK, operands += kRowOperands<Step>)
    Step::prepare_block(q + i, operands);
}

template <class Step>
constexpr BlockBody<typename Step::Number> kBody = {prepare_queries<Step>, kRowOperands<Step>,
                                                    kGroupRows, block<Step>};

}  // namespace
}  // namespace hocket::cpu
