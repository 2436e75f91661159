// Sixteen columns a register. The first rows meet one panel at a time, since one stream is what
// memory reads fastest; the others find the weights in the cache and meet two panels at a time,
// which halves what is done for each number of x.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "compute/kernels/cpu/row_counts.h"
#include "compute/kernels/product_bodies.h"

namespace hocket::cpu {
namespace {

// Rows whose sums stay in registers: of one panel, of two.
constexpr int kStreamRows = 8;
constexpr int kCachedRows = 6;
// Rows that pass together, so that their x stays in L2.
constexpr int kRowsTogether = 96;
// Blocks ahead that one panel is fetched. A single row gains from staying near.
template <int R>
constexpr int kPrefetchBlocks = R == 1 ? 4 : 8;

// The even and the odd number of a pair: of sixteen columns, or one row's for all columns.
struct Pairs {
  __m512 even, odd;
};
inline Pairs split(__m512i both) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(both, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(-0x10000)))};
}
inline Pairs load_pairs(const Bf16* w) {
  return split(_mm512_loadu_si512(w));
}
inline Pairs load_pairs(const float* w) {
  const __m512 low = _mm512_loadu_ps(w), high = _mm512_loadu_ps(w + 16);
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {_mm512_permutex2var_ps(low, even, high), _mm512_permutex2var_ps(low, odd, high)};
}
inline Pairs broadcast_pair(const Bf16* x) {
  int32_t both;
  std::memcpy(&both, x, sizeof both);
  return split(_mm512_set1_epi32(both));
}
inline Pairs broadcast_pair(const float* x) {
  return {_mm512_set1_ps(x[0]), _mm512_set1_ps(x[1])};
}

// The lines of one pair of k in sixteen columns.
template <class T>
inline void prefetch_pair(const T* w) {
#pragma GCC unroll 2
  for (int i = 0; i < 2 * kPanelN; i += 64 / static_cast<int>(sizeof(T)))
    _mm_prefetch(reinterpret_cast<const char*>(w + i), _MM_HINT_T0);
}

// R rows from `row` on by N panels from `panel` on. A single panel is fetched ahead.
template <int R, int N, class T>
void multiply(const Product<T>& p, int row, int panel) {
  const T* x = p.x + row * p.x_stride;
  const T* w = p.w + panel * p.panel_stride;
  const int64_t ahead = std::min(kPrefetchBlocks<R>, p.k_blocks) * int64_t{kTileElements};
  float* const y = p.y + row * p.y_stride + panel * kPanelN;
  const auto each = [&](auto&& body) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) body(r, n, y + r * p.y_stride + n * kPanelN);
  };
  if (!p.accumulate) each([](int, int, float* to) { _mm512_storeu_ps(to, _mm512_setzero_ps()); });
  for (int block = 0; block < p.k_blocks; ++block, x += kBlockK, w += kTileElements) {
    __m512 e[R][N], o[R][N];
    each([&](int r, int n, float*) { e[r][n] = o[r][n] = _mm512_setzero_ps(); });
#pragma GCC unroll 16
    for (int pair = 0; pair < kBlockK / 2; ++pair) {
      const T* const at = w + pair * 2 * kPanelN;
      if constexpr (N == 1) prefetch_pair(at + ahead);
      Pairs b[N];
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) b[n] = load_pairs(at + n * p.panel_stride);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Pairs a = broadcast_pair(x + r * p.x_stride + 2 * pair);
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) {
          e[r][n] = _mm512_fmadd_ps(a.even, b[n].even, e[r][n]);
          o[r][n] = _mm512_fmadd_ps(a.odd, b[n].odd, o[r][n]);
        }
      }
    }
    each([&](int r, int n, float* to) {
      const __m512 sum = _mm512_add_ps(e[r][n], o[r][n]);
      _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), sum));
    });
  }
}

// body(begin, count) for `rows` rows in even parts of at most `most`.
template <class Body>
inline void for_even_parts(int rows, int most, Body&& body) {
  const int parts = (rows + most - 1) / most;
  for (int part = 0, begin = 0; part < parts; ++part) {
    const int end = rows * (part + 1) / parts;
    body(begin, end - begin);
    begin = end;
  }
}

// Rows [row, row + rows) by N panels.
template <int kMost, int N, class T>
inline void multiply_rows(const Product<T>& p, int row, int rows, int panel) {
  for_even_parts(rows, kMost, [&](int begin, int count) {
    with_rows<kMost>(count, [&](auto r) { multiply<r(), N>(p, row + begin, panel); });
  });
}

// How many of the rows stream the weights; parts of one or two rows would be slow.
int streaming_rows(int rows) {
  return rows <= kStreamRows ? rows : std::min((rows + 1) / 2, kStreamRows);
}

template <class T>
void product(const Product<T>& p) {
  for_even_parts(p.rows, kRowsTogether, [&](int row, int rows) {
    const int first = streaming_rows(rows);
    int panel = 0;
    for (; panel + 2 <= p.panels; panel += 2) {
      multiply_rows<kStreamRows, 1>(p, row, first, panel);
      multiply_rows<kStreamRows, 1>(p, row, first, panel + 1);
      multiply_rows<kCachedRows, 2>(p, row + first, rows - first, panel);
    }
    if (panel < p.panels) multiply_rows<kStreamRows, 1>(p, row, rows, panel);
  });
}

}  // namespace

void avx512_product_bf16(const Product<Bf16>& p) {
  product(p);
}
void avx512_product_f32(const Product<float>& p) {
  product(p);
}

}  // namespace hocket::cpu
