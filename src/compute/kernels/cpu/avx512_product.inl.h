// The bf16 and fp32 product, for any step (avx512_step.h). The row operands of x are prepared once
// for all panels, so that each costs one broadcasting load.
//   up to 8 rows   one panel at a time: memory reads one stream fastest
//   more rows      two panels at a time, in chunks of k that become operands once for all rows,
//                  while the next chunk is fetched
#pragma once

#include <algorithm>

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/avx512_step.h"
#include "compute/kernels/cpu/prefetch.h"
#include "compute/kernels/cpu/row_counts.h"

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

constexpr int kLine = 64;
// Rows whose sums stay in registers: for one panel, and for two.
constexpr int kStreamRows = kVectorRows;
constexpr int kTwoPanelRows = 6;

template <class Step>
struct AnyProduct {
  using Number = typename Step::Number;
  // Blocks of two panels whose operands stay in L1 while all rows use them.
  static constexpr int kChunkBlocks = 2 * Step::kStepK;
  // Blocks by which one panel is fetched ahead, to L2 and then to L1; the best of the values tried.
  template <int R>
  static constexpr int kFarBlocks = R == 1 ? 4 : 8;
  template <int R>
  static constexpr int kNearBlocks = R <= 4 ? 2 : 1;
  static constexpr int kStepNumbers = Step::kStepK * kPanelN;  // in one panel

  // The operands of some rows, in groups whose sums stay in registers. A group is
  // [k_blocks][rows of the group][kRowOperands]; the group that begins with row r is at
  // operands + r * stride.
  struct Rows {
    float* operands;
    int64_t stride;
    int rows, most;  // rows in all, and the most in a group

    // Calls body(first row, count, the group's operands) for each group.
    template <class Body>
    void for_each_group(Body&& body) const {
      const int groups = (rows + most - 1) / most;
      for (int group = 0, row = 0; group < groups; ++group) {
        const int end = rows * (group + 1) / groups;
        body(row, end - row, operands + row * stride);
        row = end;
      }
    }
  };

  // P: Product or ScaledProduct.
  template <class P>
  static Rows prepare_rows(const P& p, int row, int rows) {
    const int most = rows <= kStreamRows ? kStreamRows : kTwoPanelRows;
    const Rows prepared = {static_cast<float*>(p.scratch), int64_t{p.k_blocks} * kRowOperands<Step>,
                           rows, most};
    prepared.for_each_group([&](int first, int count, float* to) {
      const Number* from = p.x + (row + first) * p.x_stride;
      for (int block = 0; block < p.k_blocks; ++block, from += kBlockK)
        for (int r = 0; r < count; ++r, to += kRowOperands<Step>)
          Step::prepare_block(from + r * p.x_stride, to);
    });
    return prepared;
  }

  // Multiplies one panel with R rows. kFetches: it is fetched ahead, and where the next panel
  // follows, that one, too.
  template <int R, bool kFetches>
  static void stream(const Product<Number>& p, const float* x, const Number* w, float* y) {
    const bool follows = p.panel_stride == int64_t{p.k_blocks} * kTileElements;
    const int64_t far =
        (follows ? kFarBlocks<R> : std::min(kFarBlocks<R>, p.k_blocks)) * int64_t{kTileElements};
    constexpr int64_t kNear = int64_t{kNearBlocks<R>} * kTileElements;
    __m512 c[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      c[r] = p.accumulate ? _mm512_loadu_ps(y + r * p.y_stride) : _mm512_setzero_ps();
    for (int block = 0; block < p.k_blocks; ++block, x += R * kRowOperands<Step>) {
      __m512 e[R], o[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) e[r] = o[r] = _mm512_setzero_ps();
#pragma GCC unroll 16
      for (int step = 0; step < kSteps<Step>; ++step, w += kStepNumbers) {
#pragma GCC unroll 2
        for (int i = 0; kFetches && i < kStepNumbers;
             i += kLine / static_cast<int>(sizeof(Number))) {
          prefetch_l2(w + far + i);
          prefetch_l1(w + kNear + i);
        }
        const ColumnOperands b = Step::column_operands(w);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const float* const a = x + r * kRowOperands<Step> + 2 * step;
          e[r] = Step::multiply_add(_mm512_set1_ps(a[0]), b.e, e[r]);
          o[r] = Step::multiply_add(_mm512_set1_ps(a[1]), b.o, o[r]);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) c[r] = _mm512_add_ps(c[r], _mm512_add_ps(e[r], o[r]));
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) _mm512_storeu_ps(y + r * p.y_stride, c[r]);
  }

  // The column operands of some blocks of N panels: [blocks][steps][N][e, o][16 columns].
  template <int N>
  struct Chunk {
    alignas(kLine) float w[kChunkBlocks * kRowOperands<Step> * N * kPanelN];
    int blocks;
    bool first;  // true: sums start from zero

    void make(const Number* from, int64_t panel_stride) {
      for (int step = 0; step < blocks * kSteps<Step>; ++step)
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n)
          set(step, n, Step::column_operands(from + n * panel_stride + step * kStepNumbers));
    }
    void set(int step, int n, ColumnOperands b) {
      float* const to = w + (step * N + n) * 2 * kPanelN;
      _mm512_store_ps(to, b.e);
      _mm512_store_ps(to + kPanelN, b.o);
    }
  };

  // The weights to fetch ahead: the blocks of N panels that follow a chunk.
  struct PrefetchLines {
    const char* w;
    int64_t panel_bytes;  // from one panel to the next
    int lines = 0,
        lines_per_block = 0;  // lines of each panel, in all and in each block of the chunk
    int line = 0;

    PrefetchLines(const void* from, int64_t stride, int64_t bytes, int chunk_blocks)
        : w(static_cast<const char*>(from)),
          panel_bytes(stride),
          lines(static_cast<int>(bytes / kLine)),
          lines_per_block((lines + chunk_blocks - 1) / chunk_blocks) {}
  };

  // y += product of R rows and a chunk.
  template <int R, int N>
  static void multiply_chunk(const Chunk<N>& chunk, const float* x, float* y, int64_t y_stride,
                             PrefetchLines& ahead) {
    const float* w = chunk.w;
    for (int block = 0; block < chunk.blocks; ++block, x += R * kRowOperands<Step>) {
      for (int end = std::min(ahead.line + ahead.lines_per_block, ahead.lines); ahead.line < end;
           ++ahead.line)
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n)
          prefetch_l2(ahead.w + n * ahead.panel_bytes + ahead.line * kLine);
      __m512 e[R][N], o[R][N];
      const auto each = [&](auto&& body) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
          for (int n = 0; n < N; ++n) body(r, n, y + r * y_stride + n * kPanelN);
      };
      each([&](int r, int n, float*) { e[r][n] = o[r][n] = _mm512_setzero_ps(); });
#pragma GCC unroll 16
      for (int step = 0; step < kSteps<Step>; ++step, w += 2 * N * kPanelN) {
        ColumnOperands b[N];
#pragma GCC unroll 2
        for (int n = 0; n < N; ++n)
          b[n] = {_mm512_load_ps(w + n * 2 * kPanelN), _mm512_load_ps(w + (n * 2 + 1) * kPanelN)};
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const __m512 row_e = _mm512_set1_ps(x[r * kRowOperands<Step> + 2 * step]);
          const __m512 row_o = _mm512_set1_ps(x[r * kRowOperands<Step> + 2 * step + 1]);
#pragma GCC unroll 2
          for (int n = 0; n < N; ++n) {
            e[r][n] = Step::multiply_add(row_e, b[n].e, e[r][n]);
            o[r][n] = Step::multiply_add(row_o, b[n].o, o[r][n]);
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
  template <int N>
  static void multiply_panels(const Product<Number>& p, const Rows& x, const Number* w, float* y) {
    Chunk<N> chunk;
    const int groups = (x.rows + x.most - 1) / x.most;
    for (int block = 0; block < p.k_blocks; block += chunk.blocks) {
      chunk.blocks = std::min(kChunkBlocks, p.k_blocks - block);
      chunk.first = block == 0 && !p.accumulate;
      chunk.make(w + int64_t{block} * kTileElements, p.panel_stride);
      const int next = block + chunk.blocks;
      constexpr int64_t kBytes = sizeof(Number);
      PrefetchLines ahead(
          next < p.k_blocks ? w + int64_t{next} * kTileElements : w + N * p.panel_stride,
          p.panel_stride * kBytes, chunk.blocks * kTileElements * kBytes, groups * chunk.blocks);
      x.for_each_group([&](int row, int rows, const float* operands) {
        with_rows<kTwoPanelRows>(rows, [&](auto r) {
          multiply_chunk<r()>(chunk, operands + int64_t{block} * r() * kRowOperands<Step>,
                              y + row * p.y_stride, p.y_stride, ahead);
        });
      });
    }
  }

  static void run(const Product<Number>& p) {
    const int most = rows_together(p.k_blocks), parts = (p.rows + most - 1) / most;
    for (int part = 0, row = 0; part < parts; ++part) {
      const int end = p.rows * (part + 1) / parts;
      const Rows x = prepare_rows(p, row, end - row);
      const Number* w = p.w;
      float* y = p.y + row * p.y_stride;
      int panel = 0;
      if (x.rows > kStreamRows)
        for (; panel + 2 <= p.panels; panel += 2, w += 2 * p.panel_stride, y += 2 * kPanelN)
          multiply_panels<2>(p, x, w, y);
      for (; panel < p.panels; ++panel, w += p.panel_stride, y += kPanelN) {
        if (x.rows > kStreamRows) {
          multiply_panels<1>(p, x, w, y);
        } else {
          with_rows<kStreamRows>(x.rows, [&](auto r) {
            with_prefetch<r() == 1>(
                [&](auto fetches) { stream<r(), fetches()>(p, x.operands, w, y); });
          });
        }
      }
      row = end;
    }
  }
};

}  // namespace
}  // namespace hocket::cpu
