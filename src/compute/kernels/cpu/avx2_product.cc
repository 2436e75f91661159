// A register has eight columns, so a panel is two half panels. Results are kept in y between
// blocks, because sixteen registers hold the sums of one block only.
#include <immintrin.h>

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/avx2_registers.h"
#include "compute/kernels/cpu/row_counts.h"

namespace hocket::cpu {
namespace {

// The pairs of k of eight columns: what is added to the sums e, and to the sums o.
struct ColumnOperands {
  __m256 e, o;
};
inline ColumnOperands column_operands(const Bf16* w) {
  const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(both, 16)),
          _mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(-0x10000)))};
}
inline ColumnOperands column_operands(const float* w) {
  const __m256 low = _mm256_loadu_ps(w), high = _mm256_loadu_ps(w + kLanes);
  // The shuffles give 0 2 8 10 | 4 6 12 14 and its odd twin; then the middle quarters change
  // places.
  const __m256d even = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0x88));
  const __m256d odd = _mm256_castps_pd(_mm256_shuffle_ps(low, high, 0xdd));
  return {_mm256_castpd_ps(_mm256_permute4x64_pd(even, 0xd8)),
          _mm256_castpd_ps(_mm256_permute4x64_pd(odd, 0xd8))};
}

inline void widen_block(const Bf16* x, float* to) {
  for (int i = 0; i < kBlockK; i += kLanes) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i));
    const __m256i wide = _mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), wide);
  }
}
inline void widen_block(const float* x, float* to) {
  for (int i = 0; i < kBlockK; i += kLanes) _mm256_storeu_ps(to + i, _mm256_loadu_ps(x + i));
}

// y += e + o for R rows by H half panels of one k-block. x: [R][32], widened.
template <int R, int H, class T>
void add_block(const float* x, const T* w, float* y, int64_t y_stride) {
  __m256 e[R][H], o[R][H];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) e[r][h] = o[r][h] = _mm256_setzero_ps();
#pragma GCC unroll 4
  for (int pair = 0; pair < kBlockK / 2; ++pair) {
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
      const ColumnOperands b = column_operands(w + pair * 2 * kPanelN + h * 2 * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const float* a = x + r * kBlockK + 2 * pair;
        e[r][h] = _mm256_fmadd_ps(_mm256_broadcast_ss(a), b.e, e[r][h]);
        o[r][h] = _mm256_fmadd_ps(_mm256_broadcast_ss(a + 1), b.o, o[r][h]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
      float* c = y + r * y_stride + h * kLanes;
      _mm256_storeu_ps(c, _mm256_add_ps(_mm256_loadu_ps(c), _mm256_add_ps(e[r][h], o[r][h])));
    }
}

// Multiplies all panels with R rows. H: half panels at once, 1 or 2.
template <int R, int H, class T>
void multiply_rows(const Product<T>& p, int row) {
  constexpr int kLine = 64 / sizeof(T);
  float* x = static_cast<float*>(p.scratch);
  for (int block = 0; block < p.k_blocks; ++block)
    for (int r = 0; r < R; ++r)
      widen_block(p.x + (row + r) * p.x_stride + block * kBlockK, x + (block * R + r) * kBlockK);
  for (int panel = 0; panel < p.panels; ++panel) {
    float* y = p.y + row * p.y_stride + panel * kPanelN;
    if (!p.accumulate)
      for (int r = 0; r < R; ++r)
        for (int i = 0; i < kPanelN; i += kLanes)
          _mm256_storeu_ps(y + r * p.y_stride + i, _mm256_setzero_ps());
    const T* w = p.w + panel * p.panel_stride;
    for (int block = 0; block < p.k_blocks; ++block, w += kTileElements) {
      for (int i = 0; i < kTileElements; i += kLine)
        _mm_prefetch(reinterpret_cast<const char*>(w + 2 * kTileElements + i), _MM_HINT_T1);
      for (int half = 0; half < 2; half += H)
        add_block<R, H>(x + block * R * kBlockK, w + half * 2 * kLanes, y + half * kLanes,
                        p.y_stride);
    }
  }
}

template <class T>
void product(const Product<T>& p) {
  for_each_rows<kRegisterRows>(
      p.rows, [&](auto count, int row) { multiply_rows<count(), count() <= 2 ? 2 : 1>(p, row); });
}

}  // namespace

void avx2_product_bf16(const Product<Bf16>& p) {
  product(p);
}
void avx2_product_f32(const Product<float>& p) {
  product(p);
}

}  // namespace hocket::cpu
