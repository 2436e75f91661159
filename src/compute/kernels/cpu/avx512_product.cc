// Sixteen columns a register. Panels are taken by ones or twos: as few as keep four sums running
// side by side, which hide the latency of an addition, since fewer panels are fewer streams from
// memory.
#include <immintrin.h>

#include "compute/kernels/product_bodies.h"

namespace hocket::cpu {
namespace {

constexpr int kPrefetchBlocks = 2;  // 2 KiB of bf16 ahead

// Even and odd k of sixteen columns.
struct Pairs {
  __m512 even, odd;
};
inline Pairs load_pairs(const Bf16* w) {
  const __m512i both = _mm512_loadu_si512(w);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(-0x10000)))};
}
inline Pairs load_pairs(const float* w) {
  const __m512 low = _mm512_loadu_ps(w), high = _mm512_loadu_ps(w + 16);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {_mm512_permutex2var_ps(low, even, high), _mm512_permutex2var_ps(low, odd, high)};
}

inline void widen_block(const Bf16* x, float* to) {
  for (int i = 0; i < kBlockK; i += 16) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
    _mm512_store_si512(to + i, wide);
  }
}
inline void widen_block(const float* x, float* to) {
  for (int i = 0; i < kBlockK; i += 16) _mm512_store_ps(to + i, _mm512_loadu_ps(x + i));
}

template <class T>
inline void prefetch_block(const T* w) {
  constexpr int kLine = 64 / sizeof(T);
#pragma GCC unroll 32
  for (int i = 0; i < kTileElements; i += kLine)
    _mm_prefetch(reinterpret_cast<const char*>(w + i), _MM_HINT_T1);
}

// What one group of panels multiplies; x is widened: [k_blocks][rows][32].
template <class T>
struct Group {
  const float* x;
  const T* w;
  const T* next;  // the panels after these, to be prefetched at the end
  int64_t panel_stride;
  int k_blocks;
  float* y;
  int64_t y_stride;
  bool accumulate;
};

template <int R, int P, class T>
void multiply(const Group<T>& g) {
  __m512 c[R][P];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j)
      c[r][j] =
          g.accumulate ? _mm512_loadu_ps(g.y + r * g.y_stride + j * kPanelN) : _mm512_setzero_ps();
  const float* x = g.x;
  for (int block = 0; block < g.k_blocks; ++block, x += R * kBlockK) {
    const T* w = g.w + int64_t{block} * kTileElements;
    const int ahead = block + kPrefetchBlocks;
    const T* later = ahead < g.k_blocks ? w + kPrefetchBlocks * kTileElements
                                        : g.next + int64_t{ahead - g.k_blocks} * kTileElements;
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j) prefetch_block(later + j * g.panel_stride);
    __m512 e[R][P], o[R][P];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j) e[r][j] = o[r][j] = _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int pair = 0; pair < kBlockK / 2; ++pair) {
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j) {
        const Pairs b = load_pairs(w + j * g.panel_stride + pair * 2 * kPanelN);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const float* a = x + r * kBlockK + 2 * pair;
          e[r][j] = _mm512_fmadd_ps(_mm512_set1_ps(a[0]), b.even, e[r][j]);
          o[r][j] = _mm512_fmadd_ps(_mm512_set1_ps(a[1]), b.odd, o[r][j]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int j = 0; j < P; ++j) c[r][j] = _mm512_add_ps(c[r][j], _mm512_add_ps(e[r][j], o[r][j]));
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int j = 0; j < P; ++j) _mm512_storeu_ps(g.y + r * g.y_stride + j * kPanelN, c[r][j]);
}

// All panels for R rows, P at a time, the rest one by one.
template <int R, int P, class T>
void multiply_rows(const Product<T>& p, int row) {
  float* x = static_cast<float*>(p.scratch);
  for (int block = 0; block < p.k_blocks; ++block)
    for (int r = 0; r < R; ++r)
      widen_block(p.x + (row + r) * p.x_stride + block * kBlockK, x + (block * R + r) * kBlockK);
  for (int panel = 0; panel < p.panels;) {
    const int left = p.panels - panel;
    const int width = left < P ? 1 : P;
    const T* w = p.w + panel * p.panel_stride;
    const Group<T> group{x,
                         w,
                         left > width ? w + width * p.panel_stride : w,
                         p.panel_stride,
                         p.k_blocks,
                         p.y + row * p.y_stride + panel * kPanelN,
                         p.y_stride,
                         p.accumulate};
    if (width == P) {
      multiply<R, P>(group);
    } else {
      multiply<R, 1>(group);
    }
    panel += width;
  }
}

template <class T>
void product(const Product<T>& p) {
  for (int row = 0; row < p.rows; row += kVectorRows) {
    switch (p.rows - row) {
      case 1:
        multiply_rows<1, 2>(p, row);
        break;
      case 2:
        multiply_rows<2, 2>(p, row);
        break;
      case 3:
        multiply_rows<3, 1>(p, row);
        break;
      case 4:
        multiply_rows<4, 1>(p, row);
        break;
      case 5:
        multiply_rows<5, 1>(p, row);
        break;
      case 6:
        multiply_rows<6, 1>(p, row);
        break;
      case 7:
        multiply_rows<7, 1>(p, row);
        break;
      default:
        multiply_rows<kVectorRows, 1>(p, row);
    }
  }
}

}  // namespace

void avx512_product_bf16(const Product<Bf16>& p) {
  product(p);
}
void avx512_product_f32(const Product<float>& p) {
  product(p);
}

}  // namespace hocket::cpu
