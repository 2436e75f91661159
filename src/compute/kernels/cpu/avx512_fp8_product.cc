// fp8 weights widened in registers, sixteen columns each; one panel at a time.
#include <immintrin.h>

#include "compute/kernels/cpu/row_counts.h"
#include "compute/kernels/product_bodies.h"

namespace hocket::cpu {
namespace {

constexpr int kTileBytes = kTileElements;
// Bytes ahead that weights are fetched.
template <int R>
constexpr int kAhead = R == 1 ? 2048 : 4096;

// Sixteen columns of four k.
struct FourK {
  __m512 even[2], odd[2];
};

// Sixteen words whose bits are those of e4m3, one place right of fp16's: the number times 2^-8,
// subnormals included, since this conversion heeds no DAZ.
inline __m512 widen(__m256i halves) {
  return _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(0x1p8f));
}
inline FourK load_four(const std::byte* w) {
  const __m512i bytes = _mm512_loadu_si512(w);
  const __m512i keep = _mm512_set1_epi16(static_cast<int16_t>(0xbf80));
  const __m512i even = _mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 1), keep);
  const __m512i odd = _mm512_and_si512(_mm512_srai_epi16(bytes, 1), keep);
  return {{widen(_mm512_castsi512_si256(even)), widen(_mm512_extracti64x4_epi64(even, 1))},
          {widen(_mm512_castsi512_si256(odd)), widen(_mm512_extracti64x4_epi64(odd, 1))}};
}

inline void widen_block(const Bf16* x, float* to) {
  for (int i = 0; i < kBlockK; i += 16) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
    _mm512_store_si512(to + i, wide);
  }
}

// What one panel multiplies.
struct Panel {
  const float* x;  // [k_blocks][R][32], widened
  const std::byte* w;
  const float* scales;
  int k_blocks, group_blocks;
  float* y;
  int64_t y_stride;
};

// One group: c = canonical product.
template <int R>
inline void multiply_group(const float* x, const std::byte* w, int k_blocks, __m512 (&c)[R]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) c[r] = _mm512_setzero_ps();
  for (int block = 0; block < k_blocks; ++block, x += R * kBlockK, w += kTileBytes) {
    __m512 e[R], o[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) e[r] = o[r] = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int four = 0; four < kBlockK / 4; ++four) {
      _mm_prefetch(reinterpret_cast<const char*>(w + kAhead<R> + four * 64), _MM_HINT_T1);
      const FourK b = load_four(w + four * 64);
#pragma GCC unroll 2
      for (int pair = 0; pair < 2; ++pair)
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const float* a = x + r * kBlockK + four * 4 + pair * 2;
          e[r] = _mm512_fmadd_ps(_mm512_set1_ps(a[0]), b.even[pair], e[r]);
          o[r] = _mm512_fmadd_ps(_mm512_set1_ps(a[1]), b.odd[pair], o[r]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) c[r] = _mm512_add_ps(c[r], _mm512_add_ps(e[r], o[r]));
  }
}

template <int R>
void multiply(const Panel& p) {
  int group = 0;
  for (int block = 0; block < p.k_blocks; block += p.group_blocks, ++group) {
    const int left = p.k_blocks - block;
    __m512 c[R];
    multiply_group<R>(p.x + int64_t{block} * R * kBlockK, p.w + int64_t{block} * kTileBytes,
                      left < p.group_blocks ? left : p.group_blocks, c);
    const __m512 scale = _mm512_loadu_ps(p.scales + group * kPanelN);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      float* y = p.y + r * p.y_stride;
      const __m512 acc = group == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(y);
      _mm512_storeu_ps(y, _mm512_fmadd_ps(c[r], scale, acc));
    }
  }
}

// All panels for R rows.
template <int R>
void multiply_rows(const ScaledProduct<Bf16>& p, int row) {
  float* x = static_cast<float*>(p.scratch);
  for (int block = 0; block < p.k_blocks; ++block)
    for (int r = 0; r < R; ++r)
      widen_block(p.x + (row + r) * p.x_stride + block * kBlockK, x + (block * R + r) * kBlockK);
  for (int panel = 0; panel < p.panels; ++panel)
    multiply<R>({x, p.w + panel * p.panel_bytes, p.scales + int64_t{panel} * p.groups * kPanelN,
                 p.k_blocks, p.group_blocks, p.y + row * p.y_stride + panel * kPanelN, p.y_stride});
}

}  // namespace

void avx512_product_fp8(const ScaledProduct<Bf16>& p) {
  for_each_rows<kVectorRows>(p.rows, [&](auto count, int row) { multiply_rows<count()>(p, row); });
}

}  // namespace hocket::cpu
