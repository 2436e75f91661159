// Sixteen columns a register; one panel at a time, since one stream is what memory reads fastest.
#include <immintrin.h>

#include "compute/kernels/cpu/row_counts.h"
#include "compute/kernels/product_bodies.h"

namespace hocket::cpu {
namespace {

// Blocks ahead that weights are fetched; the best of 2 to 16 on Zen 4, where one row gains from
// staying near.
template <int R>
constexpr int kPrefetchBlocks = R == 1 ? 2 : 6;

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

// The lines of one pair of k in sixteen columns.
template <class T>
inline void prefetch_pair(const T* w) {
#pragma GCC unroll 2
  for (int i = 0; i < 2 * kPanelN; i += 64 / static_cast<int>(sizeof(T)))
    _mm_prefetch(reinterpret_cast<const char*>(w + i), _MM_HINT_T1);
}

// What one panel multiplies.
template <class T>
struct Panel {
  const float* x;  // [k_blocks][R][32], widened
  const T* w;
  const T* next;  // the panel after this one, to be prefetched at the end
  int k_blocks;
  float* y;
  int64_t y_stride;
  bool accumulate;
};

template <int R, class T>
void multiply(const Panel<T>& p) {
  __m512 c[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
    c[r] = p.accumulate ? _mm512_loadu_ps(p.y + r * p.y_stride) : _mm512_setzero_ps();
  const float* x = p.x;
  const T* w = p.w;
  for (int block = 0; block < p.k_blocks; ++block, x += R * kBlockK, w += kTileElements) {
    const int ahead = block + kPrefetchBlocks<R>;
    const T* later = (ahead < p.k_blocks ? p.w : p.next - int64_t{p.k_blocks} * kTileElements) +
                     int64_t{ahead} * kTileElements;
    __m512 e[R], o[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) e[r] = o[r] = _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int pair = 0; pair < kBlockK / 2; ++pair) {
      prefetch_pair(later + pair * 2 * kPanelN);
      const Pairs b = load_pairs(w + pair * 2 * kPanelN);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const float* a = x + r * kBlockK + 2 * pair;
        e[r] = _mm512_fmadd_ps(_mm512_set1_ps(a[0]), b.even, e[r]);
        o[r] = _mm512_fmadd_ps(_mm512_set1_ps(a[1]), b.odd, o[r]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) c[r] = _mm512_add_ps(c[r], _mm512_add_ps(e[r], o[r]));
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) _mm512_storeu_ps(p.y + r * p.y_stride, c[r]);
}

// All panels for R rows.
template <int R, class T>
void multiply_rows(const Product<T>& p, int row) {
  float* x = static_cast<float*>(p.scratch);
  for (int block = 0; block < p.k_blocks; ++block)
    for (int r = 0; r < R; ++r)
      widen_block(p.x + (row + r) * p.x_stride + block * kBlockK, x + (block * R + r) * kBlockK);
  for (int panel = 0; panel < p.panels; ++panel) {
    const T* w = p.w + panel * p.panel_stride;
    multiply<R, T>({x, w, panel + 1 < p.panels ? w + p.panel_stride : w, p.k_blocks,
                    p.y + row * p.y_stride + panel * kPanelN, p.y_stride, p.accumulate});
  }
}

template <class T>
void product(const Product<T>& p) {
  for_each_rows<kVectorRows>(p.rows, [&](auto count, int row) { multiply_rows<count()>(p, row); });
}

}  // namespace

void avx512_product_bf16(const Product<Bf16>& p) {
  product(p);
}
void avx512_product_f32(const Product<float>& p) {
  product(p);
}

}  // namespace hocket::cpu
