// fp8 weights, widened by tables that VBMI's byte permutes look up 64 at a time, for any step
// (avx512_step.h).
#pragma once

#include "compute/kernels/cpu/avx512_step.h"
#include "compute/kernels/cpu/row_counts.h"
#include "compute/kernels/product_bodies.h"

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

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

// Source bytes of two registers of bf16 numbers: a number's low byte is i, its high byte 64 + i.
struct Sources {
  alignas(64) uint8_t from[2][64];
  constexpr void set(int line, int place, int i) {
    from[line][2 * place] = static_cast<uint8_t>(i);
    from[line][2 * place + 1] = static_cast<uint8_t>(64 + i);
  }
};
// The lines of a bf16 tile: k and k + 1 side by side.
constexpr Sources make_tile_order() {
  Sources order = {};
  for (int i = 0; i < 64; ++i) order.set(i / 32, i % 32, i);
  return order;
}
// The operands of Bf16Step: k + 2 and k, then k + 3 and k + 1.
constexpr Sources make_pair_order() {
  Sources order = {};
  for (int odd = 0; odd < 2; ++odd)
    for (int column = 0; column < kPanelN; ++column) {
      order.set(odd, 2 * column, 32 + 2 * column + odd);
      order.set(odd, 2 * column + 1, 2 * column + odd);
    }
  return order;
}
constexpr Sources kTileOrder = make_tile_order(), kPairOrder = make_pair_order();

// Four k of sixteen columns as bf16, in two registers.
struct Lines {
  __m512i line[2];
};
inline Lines widen_line(const std::byte* w, const Sources& order) {
  const __m512i bytes = _mm512_loadu_si512(w);
  const auto look_up = [&](const uint8_t* table) {
    return _mm512_permutex2var_epi8(_mm512_load_si512(table), bytes, _mm512_load_si512(table + 64));
  };
  constexpr int kOrAnd = 0xf8;
  const __m512i low = look_up(kTable.low);
  const __m512i high =
      _mm512_ternarylogic_epi32(look_up(kTable.high), bytes, _mm512_set1_epi8(-0x80), kOrAnd);
  return {{_mm512_permutex2var_epi8(low, _mm512_load_si512(order.from[0]), high),
           _mm512_permutex2var_epi8(low, _mm512_load_si512(order.from[1]), high)}};
}

// Four k of sixteen columns as the operands of one or two steps.
template <class Step>
struct FourK {
  Columns steps[4 / Step::kDepth];
};
template <class Step>
inline FourK<Step> widen_four(const std::byte* w) {
  if constexpr (Step::kDepth == 4) {
    const Lines lines = widen_line(w, kPairOrder);
    return {{{_mm512_castsi512_ps(lines.line[0]), _mm512_castsi512_ps(lines.line[1])}}};
  } else {
    const Lines lines = widen_line(w, kTileOrder);
    return {{Step::columns(lines.line[0]), Step::columns(lines.line[1])}};
  }
}

// The operands of one panel.
struct Panel {
  const float* x;  // [k_blocks][R][words]
  const std::byte* w;
  const float* scales;
  int k_blocks, group_blocks;
  float* y;
  int64_t y_stride;
};

// c = canonical product of one group.
template <class Step, int R>
inline void multiply_group(const float* x, const std::byte* w, int k_blocks, __m512 (&c)[R]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) c[r] = _mm512_setzero_ps();
  for (int block = 0; block < k_blocks; ++block, x += R * kWords<Step>) {
    __m512 e[R], o[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) e[r] = o[r] = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int four = 0; four < kBlockK / 4; ++four, w += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(w + kAhead), _MM_HINT_T1);
      const FourK<Step> b = widen_four<Step>(w);
      constexpr int kFourSteps = 4 / Step::kDepth;
#pragma GCC unroll 2
      for (int step = 0; step < kFourSteps; ++step) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const float* a = x + r * kWords<Step> + (four * kFourSteps + step) * 2;
          e[r] = Step::multiply_add(_mm512_set1_ps(a[0]), b.steps[step].even, e[r]);
          o[r] = Step::multiply_add(_mm512_set1_ps(a[1]), b.steps[step].odd, o[r]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) c[r] = _mm512_add_ps(c[r], _mm512_add_ps(e[r], o[r]));
  }
}

template <class Step, int R>
void multiply(const Panel& p) {
  int group = 0;
  for (int block = 0; block < p.k_blocks; block += p.group_blocks, ++group) {
    const int left = p.k_blocks - block;
    __m512 c[R];
    multiply_group<Step, R>(p.x + int64_t{block} * R * kWords<Step>,
                            p.w + int64_t{block} * kTileBytes,
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
template <class Step, int R>
void multiply_rows(const ScaledProduct<Bf16>& p, int row) {
  float* const x = static_cast<float*>(p.scratch);
  for (int block = 0; block < p.k_blocks; ++block)
    for (int r = 0; r < R; ++r)
      Step::block_words(p.x + (row + r) * p.x_stride + block * kBlockK,
                        x + (block * R + r) * kWords<Step>);
  for (int panel = 0; panel < p.panels; ++panel)
    multiply<Step, R>(
        {x, p.w + panel * p.panel_bytes,
         reinterpret_cast<const float*>(p.scales) + int64_t{panel} * p.groups * kPanelN, p.k_blocks,
         p.group_blocks, p.y + row * p.y_stride + panel * kPanelN, p.y_stride});
}

template <class Step>
void product_fp8(const ScaledProduct<Bf16>& p) {
  for_each_rows<kVectorRows>(p.rows,
                             [&](auto count, int row) { multiply_rows<Step, count()>(p, row); });
}

}  // namespace
}  // namespace hocket::cpu
