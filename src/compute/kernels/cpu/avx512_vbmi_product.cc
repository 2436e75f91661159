// fp8 weights, widened by tables that VBMI's byte permutes look up 64 at a time: in registers for
// few rows, or to bf16 tiles.
#include <immintrin.h>

#include "compute/kernels/cpu/row_counts.h"
#include "compute/kernels/product_bodies.h"

namespace hocket::cpu {
namespace {

constexpr int kTileBytes = kTileElements;
constexpr int kAhead = 2048;  // bytes by which weights are fetched ahead

// The low and high bytes of every e4m3 magnitude as bf16.
struct Table {
  alignas(64) uint8_t low[128], high[128];
};
constexpr Table make_table() {
  constexpr uint16_t kSubnormal[8] = {0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};
  Table table = {};
  for (int i = 0; i < 128; ++i) {
    const int bits = i < 8 ? kSubnormal[i] : (i << 4) + 0x3c00;
    table.low[i] = static_cast<uint8_t>(bits & 0xff);
    table.high[i] = static_cast<uint8_t>(bits >> 8);
  }
  return table;
}
constexpr Table kTable = make_table();

// Sources of the bytes of bf16 pairs: low byte i, then high byte i (64 + i).
struct Interleave {
  alignas(64) uint8_t from[2][64];
};
constexpr Interleave make_interleave() {
  Interleave result = {};
  for (int i = 0; i < 64; ++i) {
    result.from[i / 32][i % 32 * 2] = static_cast<uint8_t>(i);
    result.from[i / 32][i % 32 * 2 + 1] = static_cast<uint8_t>(64 + i);
  }
  return result;
}
constexpr Interleave kInterleave = make_interleave();

// Four k of sixteen columns, as two lines of a bf16 tile.
struct Lines {
  __m512i line[2];
};
inline Lines widen_line(const std::byte* w) {
  const __m512i bytes = _mm512_loadu_si512(w);
  const auto look_up = [&](const uint8_t* table) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table), bytes, _mm512_load_si512(table + 64));
  };
  constexpr int kOrAnd = 0xf8;
  const __m512i low = look_up(kTable.low);
  const __m512i high =
      _mm512_ternarylogic_epi32(look_up(kTable.high), bytes, _mm512_set1_epi8(-0x80), kOrAnd);
  return {{_mm512_permutex2var_epi8(low, _mm512_load_si512(kInterleave.from[0]), high),
           _mm512_permutex2var_epi8(low, _mm512_load_si512(kInterleave.from[1]), high)}};
}

inline void widen_block(const Bf16* x, float* to) {
  for (int i = 0; i < kBlockK; i += 16) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    const __m512i wide = _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16);
    _mm512_store_si512(to + i, wide);
  }
}

// The operands of one panel.
struct Panel {
  const float* x;  // [k_blocks][R][32], widened
  const std::byte* w;
  const float* scales;
  int k_blocks, group_blocks;
  float* y;
  int64_t y_stride;
};

// c = canonical product of one group.
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
      _mm_prefetch(reinterpret_cast<const char*>(w + kAhead + four * 64), _MM_HINT_T1);
      const Lines b = widen_line(w + four * 64);
#pragma GCC unroll 2
      for (int pair = 0; pair < 2; ++pair) {
        const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(b.line[pair], 16));
        const __m512 odd =
            _mm512_castsi512_ps(_mm512_and_si512(b.line[pair], _mm512_set1_epi32(-0x10000)));
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const float* a = x + r * kBlockK + four * 4 + pair * 2;
          e[r] = _mm512_fmadd_ps(_mm512_set1_ps(a[0]), even, e[r]);
          o[r] = _mm512_fmadd_ps(_mm512_set1_ps(a[1]), odd, o[r]);
        }
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

// Multiplies all panels with R rows.
template <int R>
void multiply_rows(const ScaledProduct<Bf16>& p, int row) {
  float* x = static_cast<float*>(p.scratch);
  for (int block = 0; block < p.k_blocks; ++block)
    for (int r = 0; r < R; ++r)
      widen_block(p.x + (row + r) * p.x_stride + block * kBlockK, x + (block * R + r) * kBlockK);
  for (int panel = 0; panel < p.panels; ++panel)
    multiply<R>({x, p.w + panel * p.panel_bytes,
                 reinterpret_cast<const float*>(p.scales) + int64_t{panel} * p.groups * kPanelN,
                 p.k_blocks, p.group_blocks, p.y + row * p.y_stride + panel * kPanelN, p.y_stride});
}

}  // namespace

void avx512_vbmi_product_fp8(const ScaledProduct<Bf16>& p) {
  for_each_rows<kVectorRows>(p.rows, [&](auto count, int row) { multiply_rows<count()>(p, row); });
}

void avx512_vbmi_widen_tile(const std::byte* from, Bf16* to) {
  for (int at = 0; at < kTileBytes; at += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(from + kAhead + at), _MM_HINT_T1);
    const Lines lines = widen_line(from + at);
    _mm512_store_si512(to + at, lines.line[0]);
    _mm512_store_si512(to + at + 32, lines.line[1]);
  }
}

}  // namespace hocket::cpu
