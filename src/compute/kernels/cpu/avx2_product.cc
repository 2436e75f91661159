// A register has eight columns, so a panel is two half panels. Results are kept in y between
// blocks, because sixteen registers hold the sums of one block only. Many rows are multiplied with
// some k-blocks of a panel at a time, which then stay in the first cache.
#include <immintrin.h>

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/avx2_registers.h"
#include "compute/kernels/cpu/row_counts.h"

namespace hocket::cpu {
namespace {

constexpr int kChunkBlocks = 16;  // k-blocks that many rows use together

// The even (kOdd = 0) or odd numbers of the pairs of k of eight columns.
template <int kOdd>
inline __m256 column_operand(const Bf16* w) {
  const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
  return _mm256_castsi256_ps(kOdd == 0 ? _mm256_slli_epi32(both, 16)
                                       : _mm256_and_si256(both, _mm256_set1_epi32(-0x10000)));
}
template <int kOdd>
inline __m256 column_operand(const float* w) {
  const __m256 low = _mm256_loadu_ps(w), high = _mm256_loadu_ps(w + kLanes);
  // The shuffle gives 0 2 8 10 | 4 6 12 14 or its odd twin; then the middle quarters change places.
  const __m256d mixed = _mm256_castps_pd(_mm256_shuffle_ps(low, high, kOdd == 0 ? 0x88 : 0xdd));
  return _mm256_castpd_ps(_mm256_permute4x64_pd(mixed, 0xd8));
}

inline void widen_block(const float* x, float* to) {
  for (int i = 0; i < kBlockK; i += kLanes) _mm256_storeu_ps(to + i, _mm256_loadu_ps(x + i));
}

// Adds the products of the even or the odd k of one pair to the sums of R rows by two half panels.
template <int kOdd, int R, class T>
inline void add_products(const float* x, const T* w, int pair, __m256 (&sums)[R][2]) {
  const T* from = w + pair * 2 * kPanelN;
  const __m256 b[2] = {column_operand<kOdd>(from), column_operand<kOdd>(from + 2 * kLanes)};
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m256 a = _mm256_broadcast_ss(x + r * kBlockK + 2 * pair + kOdd);
    sums[r][0] = _mm256_fmadd_ps(a, b[0], sums[r][0]);
    sums[r][1] = _mm256_fmadd_ps(a, b[1], sums[r][1]);
  }
}

template <int R>
inline void clear(__m256 (&sums)[R][2]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
}

// y += e + o for R rows by a panel and one k-block. x: [R][32], widened. The registers hold the
// sums e and o of few rows; of more rows first the sums e, then the sums o.
template <int R, class T>
inline void add_block(const float* x, const T* w, float* y, int64_t y_stride) {
  constexpr bool kTogether = R <= kRegisterRows / 2;
  __m256 e[R][2], o[R][2];
  clear(e), clear(o);
#pragma GCC unroll 4
  for (int pair = 0; pair < kBlockK / 2; ++pair) {
    add_products<0>(x, w, pair, e);
    if constexpr (kTogether) add_products<1>(x, w, pair, o);
  }
  if constexpr (!kTogether) {
#pragma GCC unroll 4
    for (int pair = 0; pair < kBlockK / 2; ++pair) add_products<1>(x, w, pair, o);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      float* c = y + r * y_stride + h * kLanes;
      _mm256_storeu_ps(c, _mm256_add_ps(_mm256_loadu_ps(c), _mm256_add_ps(e[r][h], o[r][h])));
    }
}

// Widens R rows to [k_blocks][R][32].
template <int R, class T>
void widen_rows(const Product<T>& p, int row, float* to) {
  for (int block = 0; block < p.k_blocks; ++block)
    for (int r = 0; r < R; ++r, to += kBlockK)
      widen_block(p.x + (row + r) * p.x_stride + block * kBlockK, to);
}

template <int R>
inline void set_zero(float* y, int64_t y_stride) {
  for (int r = 0; r < R; ++r)
    for (int i = 0; i < kPanelN; i += kLanes)
      _mm256_storeu_ps(y + r * y_stride + i, _mm256_setzero_ps());
}

// y += the products of some k-blocks of a panel with R rows.
template <int R, class T>
void add_blocks(const float* x, const T* w, int blocks, float* y, int64_t y_stride) {
  constexpr int kLine = 64 / sizeof(T);
  for (; blocks > 0; --blocks, x += R * kBlockK, w += kTileElements) {
    for (int i = 0; i < kTileElements; i += kLine)
      _mm_prefetch(reinterpret_cast<const char*>(w + 2 * kTileElements + i), _MM_HINT_T1);
    add_block<R>(x, w, y, y_stride);
  }
}

// Multiplies all panels with rows [first, first + rows), which scratch can hold.
template <class T>
void multiply_rows(const Product<T>& p, int first, int rows) {
  const int64_t k = int64_t{p.k_blocks} * kBlockK;
  auto* const x = static_cast<float*>(p.scratch);
  for_each_equal_block<kRegisterRows>(
      rows, [&](auto count, int row) { widen_rows<count()>(p, first + row, x + row * k); });
  const int chunk = rows <= kRegisterRows ? p.k_blocks : kChunkBlocks;
  for (int begin = 0; begin < p.k_blocks; begin += chunk)
    for (int panel = 0; panel < p.panels; ++panel)
      for_each_equal_block<kRegisterRows>(rows, [&](auto count, int row) {
        float* const y = p.y + (first + row) * p.y_stride + panel * kPanelN;
        if (begin == 0 && !p.accumulate) set_zero<count()>(y, p.y_stride);
        add_blocks<count()>(x + row * k + int64_t{begin} * count() * kBlockK,
                            p.w + panel * p.panel_stride + int64_t{begin} * kTileElements,
                            p.k_blocks - begin < chunk ? p.k_blocks - begin : chunk, y, p.y_stride);
      });
}

template <class T>
void product(const Product<T>& p) {
  const int most = rows_together(p.k_blocks);
  for (int row = 0; row < p.rows; row += most)
    multiply_rows(p, row, p.rows - row < most ? p.rows - row : most);
}

}  // namespace

void avx2_product_bf16(const Product<Bf16>& p) {
  product(p);
}
void avx2_product_f32(const Product<float>& p) {
  product(p);
}

}  // namespace hocket::cpu
