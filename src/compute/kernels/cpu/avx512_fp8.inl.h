// fp8 weights, widened by tables that VBMI's byte permutes look up 64 at a time, for any step
// (avx512_step.h).
//   up to 8 rows   one panel at a time, widened in registers
//   more rows      two panels at a time, widened once for all rows, a group of k at a time
#pragma once

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/avx512_product.inl.h"
#include "compute/kernels/cpu/row_counts.h"

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
constexpr Sources make_bf16_step_order() {
  Sources order = {};
  for (int odd = 0; odd < 2; ++odd)
    for (int column = 0; column < kPanelN; ++column) {
      order.set(odd, 2 * column, 32 + 2 * column + odd);
      order.set(odd, 2 * column + 1, 2 * column + odd);
    }
  return order;
}
constexpr Sources kTileOrder = make_tile_order(), kBf16StepOrder = make_bf16_step_order();

// A quad of k of sixteen columns as bf16, in two registers.
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

template <class Step>
inline QuadOperands<Step> widen_quad(const std::byte* w) {
  if constexpr (Step::kStepK == 4) {
    const Lines lines = widen_line(w, kBf16StepOrder);
    return {{{_mm512_castsi512_ps(lines.line[0]), _mm512_castsi512_ps(lines.line[1])}}};
  } else {
    const Lines lines = widen_line(w, kTileOrder);
    return {{Step::column_operands(lines.line[0]), Step::column_operands(lines.line[1])}};
  }
}

// The operands of one panel.
struct Panel {
  const float* x;  // [k_blocks][R][kRowOperands]
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
  for (int block = 0; block < k_blocks; ++block, x += R * kRowOperands<Step>) {
    __m512 e[R], o[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) e[r] = o[r] = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int quad = 0; quad < kQuads; ++quad, w += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(w + kAhead), _MM_HINT_T1);
      const QuadOperands<Step> b = widen_quad<Step>(w);
      constexpr int kQuadSteps = QuadOperands<Step>::kSteps;
#pragma GCC unroll 2
      for (int step = 0; step < kQuadSteps; ++step) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const float* a = x + r * kRowOperands<Step> + (quad * kQuadSteps + step) * 2;
          e[r] = Step::multiply_add(_mm512_set1_ps(a[0]), b.steps[step].e, e[r]);
          o[r] = Step::multiply_add(_mm512_set1_ps(a[1]), b.steps[step].o, o[r]);
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
    const int remaining = p.k_blocks - block;
    __m512 c[R];
    multiply_group<Step, R>(p.x + int64_t{block} * R * kRowOperands<Step>,
                            p.w + int64_t{block} * kTileBytes,
                            remaining < p.group_blocks ? remaining : p.group_blocks, c);
    const __m512 scale = _mm512_loadu_ps(p.scales + group * kPanelN);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      float* y = p.y + r * p.y_stride;
      const __m512 acc = group == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(y);
      _mm512_storeu_ps(y, _mm512_fmadd_ps(c[r], scale, acc));
    }
  }
}

// Multiplies all rows of x, of which there are few, with all panels.
template <class Step>
void few_rows(const ScaledProduct<Bf16>& p) {
  const auto x = AnyProduct<Step>::prepare_rows(p, 0, p.rows);
  for (int panel = 0; panel < p.panels; ++panel)
    with_rows<kStreamRows>(p.rows, [&](auto r) {
      multiply<Step, r()>(
          {x.operands, p.w + panel * p.panel_bytes,
           reinterpret_cast<const float*>(p.scales) + int64_t{panel} * p.groups * kPanelN,
           p.k_blocks, p.group_blocks, p.y + panel * kPanelN, p.y_stride});
    });
}

// Multiplies all rows of x with N panels from `panel` on.
template <class Step, int N>
void multiply_panels(const ScaledProduct<Bf16>& p, const typename AnyProduct<Step>::Rows& x,
                     int panel, float* y) {
  using Plain = AnyProduct<Step>;
  constexpr int kQuadSteps = QuadOperands<Step>::kSteps;
  typename Plain::template Chunk<N> chunk;
  const std::byte* w = p.w + panel * p.panel_bytes;
  const float* const scales =
      reinterpret_cast<const float*>(p.scales) + int64_t{panel} * p.groups * kPanelN;
  const int row_groups = (x.rows + x.most - 1) / x.most;
  for (int group = 0, block = 0; group < p.groups; ++group, block += chunk.blocks) {
    chunk.blocks = std::min(p.group_blocks, p.k_blocks - block);
    chunk.first = true;
    const std::byte* const from = w + int64_t{block} * kTileBytes;
    for (int quad = 0; quad < chunk.blocks * kQuads; ++quad)
      for (int n = 0; n < N; ++n) {
        const QuadOperands<Step> b = widen_quad<Step>(from + n * p.panel_bytes + quad * kLine);
        for (int step = 0; step < kQuadSteps; ++step)
          chunk.set(quad * kQuadSteps + step, n, b.steps[step]);
      }
    const int next = block + chunk.blocks;
    typename Plain::PrefetchLines ahead(
        next < p.k_blocks ? w + int64_t{next} * kTileBytes : w + N * p.panel_bytes, p.panel_bytes,
        int64_t{chunk.blocks} * kTileBytes, row_groups * chunk.blocks);
    x.for_each_group([&](int row, int rows, const float* operands) {
      alignas(kLine) float sums[kTwoPanelRows * N * kPanelN];  // [rows][N * 16], one group
      with_rows<kTwoPanelRows>(rows, [&](auto r) {
        Plain::template multiply_chunk<r()>(
            chunk, operands + int64_t{block} * r() * kRowOperands<Step>, sums, N * kPanelN, ahead);
      });
      for (int r = 0; r < rows; ++r)
        for (int n = 0; n < N; ++n) {
          float* const to = y + (row + r) * p.y_stride + n * kPanelN;
          const __m512 acc = group == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(to);
          const __m512 scale = _mm512_loadu_ps(scales + (int64_t{n} * p.groups + group) * kPanelN);
          _mm512_storeu_ps(
              to, _mm512_fmadd_ps(_mm512_load_ps(sums + (r * N + n) * kPanelN), scale, acc));
        }
    });
  }
}

template <class Step>
void product_fp8(const ScaledProduct<Bf16>& p) {
  static_assert(kFp8Group / kBlockK <= AnyProduct<Step>::kChunkBlocks);
  if (p.rows == 0) return;
  if (p.rows <= kStreamRows) return few_rows<Step>(p);
  const int most = rows_together(p.k_blocks), parts = (p.rows + most - 1) / most;
  for (int part = 0, row = 0; part < parts; ++part) {
    const int end = p.rows * (part + 1) / parts;
    const auto x = AnyProduct<Step>::prepare_rows(p, row, end - row);
    float* const y = p.y + row * p.y_stride;
    int panel = 0;
    for (; panel + 2 <= p.panels; panel += 2)
      multiply_panels<Step, 2>(p, x, panel, y + panel * kPanelN);
    if (panel < p.panels) multiply_panels<Step, 1>(p, x, panel, y + panel * kPanelN);
    row = end;
  }
}

}  // namespace
}  // namespace hocket::cpu
