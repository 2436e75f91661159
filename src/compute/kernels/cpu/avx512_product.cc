// A register has sixteen columns. x is widened to fp32 once for all panels, so that each of its
// numbers costs one broadcasting load and the FMA units do little else.
//   up to 8 rows   one panel at a time: memory reads one stream fastest
//   more rows      two panels at a time, in chunks of k that are widened once for all rows, while
//                  the next chunk is fetched
#include <immintrin.h>

#include <algorithm>

#include "compute/kernels/cpu/fetch.h"
#include "compute/kernels/cpu/row_counts.h"
#include "compute/kernels/product_bodies.h"

namespace hocket::cpu {
namespace {

// Rows whose sums stay in registers: for one panel, and for two.
constexpr int kStreamRows = kVectorRows;
constexpr int kPairRows = 6;
constexpr int kPair = 2;
// Blocks of a pair of panels that stay in L1, widened, while all rows use them.
constexpr int kChunkBlocks = 4;
constexpr int kLine = 64;
// Blocks by which one panel is fetched ahead, to L2 and then to L1; the best of the values tried.
template <int R>
constexpr int kFarBlocks = R == 1 ? 4 : 8;
template <int R>
constexpr int kNearBlocks = R <= 4 ? 2 : 1;

// The even and the odd numbers of sixteen pairs.
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
inline __m512 load_wide(const Bf16* x) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
inline __m512 load_wide(const float* x) {
  return _mm512_loadu_ps(x);
}

// Some rows of x, widened, in groups whose sums stay in registers. A group is [k_blocks][rows of
// the group][32]; the group that begins with row r is at x + r * k.
struct WideRows {
  float* x;
  int64_t k;
  int rows, most;  // rows in all, and the most in a group

  // Calls body(first row, count, the group's x) for each group.
  template <class Body>
  void for_each_group(Body&& body) const {
    const int groups = (rows + most - 1) / most;
    for (int group = 0, row = 0; group < groups; ++group) {
      const int end = rows * (group + 1) / groups;
      body(row, end - row, x + row * k);
      row = end;
    }
  }
};

template <class T>
WideRows widen_rows(const Product<T>& p, int row, int rows) {
  const int most = rows <= kStreamRows ? kStreamRows : kPairRows;
  const WideRows wide = {static_cast<float*>(p.scratch), int64_t{p.k_blocks} * kBlockK, rows, most};
  wide.for_each_group([&](int first, int count, float* to) {
    const T* from = p.x + (row + first) * p.x_stride;
    for (int block = 0; block < p.k_blocks; ++block, from += kBlockK)
      for (int r = 0; r < count; ++r, to += kBlockK)
        for (int i = 0; i < kBlockK; i += 16)
          _mm512_storeu_ps(to + i, load_wide(from + r * p.x_stride + i));
  });
  return wide;
}

// Multiplies one panel, which is fetched ahead, with R rows.
template <int R, class T>
void stream(const Product<T>& p, const float* x, const T* w, float* y) {
  const int64_t far = std::min(kFarBlocks<R>, p.k_blocks) * int64_t{kTileElements};
  constexpr int64_t kNear = int64_t{kNearBlocks<R>} * kTileElements;
  __m512 c[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
    c[r] = p.accumulate ? _mm512_loadu_ps(y + r * p.y_stride) : _mm512_setzero_ps();
  for (int block = 0; block < p.k_blocks; ++block, x += R * kBlockK, w += kTileElements) {
    __m512 e[R], o[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) e[r] = o[r] = _mm512_setzero_ps();
#pragma GCC unroll 16
    for (int pair = 0; pair < kBlockK / 2; ++pair) {
      const T* const at = w + pair * 2 * kPanelN;
#pragma GCC unroll 2
      for (int i = 0; i < 2 * kPanelN; i += kLine / static_cast<int>(sizeof(T))) {
        fetch_far(at + far + i);
        fetch_near(at + kNear + i);
      }
      const Pairs b = load_pairs(at);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const float* const a = x + r * kBlockK + 2 * pair;
        e[r] = _mm512_fmadd_ps(_mm512_set1_ps(a[0]), b.even, e[r]);
        o[r] = _mm512_fmadd_ps(_mm512_set1_ps(a[1]), b.odd, o[r]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) c[r] = _mm512_add_ps(c[r], _mm512_add_ps(e[r], o[r]));
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) _mm512_storeu_ps(y + r * p.y_stride, c[r]);
}

// Some blocks of N panels, widened: [blocks][16 pairs][N][even, odd][16 columns].
template <int N>
struct Chunk {
  alignas(kLine) float w[kChunkBlocks * kBlockK * N * kPanelN];
  int blocks;
  bool first;  // true: sums start from zero

  template <class T>
  void widen(const T* from, int64_t panel_stride) {
    for (int pair = 0; pair < blocks * kBlockK / 2; ++pair)
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) {
        const Pairs b = load_pairs(from + n * panel_stride + pair * 2 * kPanelN);
        float* const to = w + (pair * N + n) * 2 * kPanelN;
        _mm512_store_ps(to, b.even);
        _mm512_store_ps(to + kPanelN, b.odd);
      }
  }
};

// The weights to fetch ahead: the blocks of N panels that follow a chunk.
template <class T>
struct Ahead {
  const T* w;
  int64_t panel_stride;
  int lines = 0, lines_a_block = 0;  // lines of each panel
  int line = 0;
};

// y += product of R rows and a chunk.
template <int R, int N, class T>
void multiply_chunk(const Chunk<N>& chunk, const float* x, float* y, int64_t y_stride,
                    Ahead<T>& ahead) {
  const float* w = chunk.w;
  for (int block = 0; block < chunk.blocks; ++block, x += R * kBlockK) {
    for (int end = std::min(ahead.line + ahead.lines_a_block, ahead.lines); ahead.line < end;
         ++ahead.line)
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n)
        fetch_far(reinterpret_cast<const char*>(ahead.w + n * ahead.panel_stride) +
                  ahead.line * kLine);
    __m512 e[R][N], o[R][N];
    const auto each = [&](auto&& body) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) body(r, n, y + r * y_stride + n * kPanelN);
    };
    each([&](int r, int n, float*) { e[r][n] = o[r][n] = _mm512_setzero_ps(); });
#pragma GCC unroll 16
    for (int pair = 0; pair < kBlockK / 2; ++pair, w += 2 * N * kPanelN) {
      __m512 even[N], odd[N];
#pragma GCC unroll 2
      for (int n = 0; n < N; ++n) {
        even[n] = _mm512_load_ps(w + n * 2 * kPanelN);
        odd[n] = _mm512_load_ps(w + n * 2 * kPanelN + kPanelN);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512 a = _mm512_set1_ps(x[r * kBlockK + 2 * pair]);
        const __m512 b = _mm512_set1_ps(x[r * kBlockK + 2 * pair + 1]);
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n) {
          e[r][n] = _mm512_fmadd_ps(a, even[n], e[r][n]);
          o[r][n] = _mm512_fmadd_ps(b, odd[n], o[r][n]);
        }
      }
    }
    const bool anew = chunk.first && block == 0;
    each([&](int r, int n, float* to) {
      const __m512 before = anew ? _mm512_setzero_ps() : _mm512_loadu_ps(to);
      _mm512_storeu_ps(to, _mm512_add_ps(before, _mm512_add_ps(e[r][n], o[r][n])));
    });
  }
}

// Multiplies all rows of x with N panels from w on.
template <int N, class T>
void multiply_panels(const Product<T>& p, const WideRows& x, const T* w, float* y) {
  Chunk<N> chunk;
  const int groups = (x.rows + x.most - 1) / x.most;
  for (int block = 0; block < p.k_blocks; block += chunk.blocks) {
    chunk.blocks = std::min(kChunkBlocks, p.k_blocks - block);
    chunk.first = block == 0 && !p.accumulate;
    chunk.widen(w + int64_t{block} * kTileElements, p.panel_stride);
    const int next = block + chunk.blocks;
    Ahead<T> ahead = {
        next < p.k_blocks ? w + int64_t{next} * kTileElements : w + N * p.panel_stride,
        p.panel_stride};
    ahead.lines = chunk.blocks * kTileElements * static_cast<int>(sizeof(T)) / kLine;
    ahead.lines_a_block = (ahead.lines + groups * chunk.blocks - 1) / (groups * chunk.blocks);
    x.for_each_group([&](int row, int rows, const float* wide) {
      with_rows<kPairRows>(rows, [&](auto r) {
        multiply_chunk<r()>(chunk, wide + int64_t{block} * r() * kBlockK, y + row * p.y_stride,
                            p.y_stride, ahead);
      });
    });
  }
}

template <class T>
void product(const Product<T>& p) {
  const int most = rows_together(p.k_blocks), parts = (p.rows + most - 1) / most;
  for (int part = 0, row = 0; part < parts; ++part) {
    const int end = p.rows * (part + 1) / parts;
    const WideRows x = widen_rows(p, row, end - row);
    const T* w = p.w;
    float* y = p.y + row * p.y_stride;
    int panel = 0;
    if (x.rows > kStreamRows)
      for (; panel + kPair <= p.panels;
           panel += kPair, w += kPair * p.panel_stride, y += kPair * kPanelN)
        multiply_panels<kPair>(p, x, w, y);
    for (; panel < p.panels; ++panel, w += p.panel_stride, y += kPanelN) {
      if (x.rows > kStreamRows) {
        multiply_panels<1>(p, x, w, y);
      } else {
        with_rows<kStreamRows>(x.rows, [&](auto r) { stream<r()>(p, x.x, w, y); });
      }
    }
    row = end;
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
