// Weights of GGUF's formats with groups of 32 numbers times int8 rows by VNNI, one panel at a time.
// A group is half a block, so only the sums of one group and the results of eight rows are held in
// registers. Stored numbers are unsigned: those that are signed in the file have an offset added.
#include <immintrin.h>

#include <cstring>

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/avx512_group.h"
#include "compute/kernels/cpu/prefetch.h"
#include "compute/kernels/cpu/row_counts.h"

namespace hocket::cpu {
namespace {

constexpr int kQuads = kIntegerBlockK / 4;     // a block has that many
constexpr int kFar = 16384, kGroupsAhead = 8;  // kFar: the best of those tried on Zen 4
template <WeightFormat kFormat>
constexpr int kNear = tile_bytes(kFormat) == tile_bytes(WeightFormat::int8) ? 1024 : 2048;
constexpr uint8_t kOffset = 128;

// Some prepared rows: x [k_blocks][R][64], and [groups][R] of the rest.
struct Rows {
  int8_t* x;
  float* scales;
  float* totals;    // q4_k, q5_k: x_scale * float(x_sum)
  int32_t* starts;  // other formats: sums of a group start here, at -offset * x_sum
};

// The operands of one panel.
struct Panel {
  const std::byte* w;
  const std::byte* scales;
  float unit;  // the table's
};

// acc = fma(float(sum), x_scale * scale, acc); q4_k and q5_k: then acc = fma(-x_total, min, acc)
template <int R, WeightFormat kFormat>
inline void finish_group(const Panel& p, const Rows& rows, int group, const __m512i (&sums)[R],
                         __m512 (&acc)[R]) {
  GroupScales by = {};
  if constexpr (has_minima(kFormat)) {
    by = load_group_scales(p.scales, group);
  } else if constexpr (kFormat == kTable) {
    by.scale = load_table_scales(p.scales, group, p.unit);
  } else {
    by.scale = load_scales<kFormat>(p.scales, group * kPanelN);
  }
  const int64_t at = int64_t{group} * R;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m512 x_scale = _mm512_set1_ps(rows.scales[at + r]);
    acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r]), _mm512_mul_ps(x_scale, by.scale), acc[r]);
    if constexpr (has_minima(kFormat))
      acc[r] = _mm512_fnmadd_ps(_mm512_set1_ps(rows.totals[at + r]), by.min, acc[r]);
  }
}

template <WeightFormat kFormat>
inline void fetch_scales(const Panel& p, int group) {
  if constexpr (has_block_scales(kFormat)) {
    prefetch_l1(p.scales + group * (block_scales_size(kFormat) / kScaleBlockGroups));
  } else {
    prefetch_l1(p.scales + group * kPanelN * scale_size(kFormat));
  }
}

// Multiplies half a block, which is a group. The half is known at compile time, so that all shifts
// of quads are constants.
template <int kHalf, int R, WeightFormat kFormat, bool kFetches>
inline void multiply_group(const Panel& p, const Rows& rows, int block, __m512i table,
                           __m512 (&acc)[R]) {
  constexpr int kLines = tile_bytes(kFormat) / kNibbleLineBytes;
  const std::byte* const tile = p.w + int64_t{block} * tile_bytes(kFormat);
  const int8_t* const x = rows.x + int64_t{block} * R * kIntegerBlockK;
  const int group = 2 * block + kHalf;
  __m512i sums[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
    sums[r] = has_minima(kFormat) ? _mm512_setzero_si512()
                                  : _mm512_set1_epi32(rows.starts[int64_t{group} * R + r]);
#pragma GCC unroll 8
  for (int quad = kHalf * kQuads / 2; quad < (kHalf + 1) * kQuads / 2; ++quad) {
#pragma GCC unroll 2
    for (int line = quad * kLines / kQuads; kFetches && line < (quad + 1) * kLines / kQuads;
         ++line) {
      prefetch_l2(tile + kFar + line * kNibbleLineBytes);
      prefetch_l1(tile + kNear<kFormat> + line * kNibbleLineBytes);
    }
    const __m512i w = numbers_of_quad<kFormat>(tile, quad, table);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      sums[r] = _mm512_dpbusd_epi32(sums[r], w, row_quad(x + r * kIntegerBlockK + quad * 4));
  }
  if constexpr (kFetches) fetch_scales<kFormat>(p, group + kGroupsAhead);
  finish_group<R, kFormat>(p, rows, group, sums, acc);
}

template <int R, WeightFormat kFormat, bool kFetches>
void multiply_panel(const ScaledProduct<int8_t>& all, const Panel& p, const Rows& rows, float* y) {
  __m512i table = {};
  if constexpr (kFormat == kTable) table = load_table(*all.table, kOffset);
  __m512 acc[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_ps();
  for (int block = 0; block < all.k_blocks; ++block) {
    multiply_group<0, R, kFormat, kFetches>(p, rows, block, table, acc);
    if (2 * block + 1 < all.groups)
      multiply_group<1, R, kFormat, kFetches>(p, rows, block, table, acc);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) _mm512_storeu_ps(y + r * all.y_stride, acc[r]);
}

// Prepares R rows in the scratch.
template <int R, WeightFormat kFormat>
Rows prepare_rows(const ScaledProduct<int8_t>& p, int row) {
  Rows rows;
  rows.x = static_cast<int8_t*>(p.scratch);
  const int64_t figures = int64_t{p.groups} * R;
  rows.scales = reinterpret_cast<float*>(rows.x + int64_t{p.k_blocks} * R * kIntegerBlockK);
  rows.totals = rows.scales + figures;
  rows.starts = reinterpret_cast<int32_t*>(rows.totals + figures);
  for (int block = 0; block < p.k_blocks; ++block)
    for (int r = 0; r < R; ++r)
      std::memcpy(rows.x + (int64_t{block} * R + r) * kIntegerBlockK,
                  p.x + (row + r) * p.x_stride + int64_t{block} * kIntegerBlockK, kIntegerBlockK);
  for (int group = 0; group < p.groups; ++group)
    for (int r = 0; r < R; ++r) {
      const int64_t from = int64_t{row + r} * p.groups + group, to = int64_t{group} * R + r;
      rows.scales[to] = p.x_scales[from];
      if constexpr (has_minima(kFormat)) {
        rows.totals[to] = p.x_scales[from] * static_cast<float>(p.x_sums[from]);
      } else {
        rows.starts[to] = -kOffset * p.x_sums[from];
      }
    }
  return rows;
}

template <WeightFormat kFormat>
void product(const ScaledProduct<int8_t>& p) {
  for_each_rows<kVectorRows>(p.rows, [&](auto count, int row) {
    const Rows rows = prepare_rows<count(), kFormat>(p, row);
    const auto multiply_panels = [&](auto fetches) {
      for (int panel = 0; panel < p.panels; ++panel)
        multiply_panel<count(), kFormat, fetches()>(
            p,
            {.w = p.w + panel * p.panel_bytes,
             .scales = p.scales + panel * p.panel_scale_bytes,
             .unit = kFormat == kTable ? p.table->unit : 1},
            rows, p.y + row * p.y_stride + panel * kPanelN);
    };
    constexpr bool kUnpacks = tile_bytes(kFormat) < tile_bytes(WeightFormat::int8);
    with_prefetch<count() == 1 && !kUnpacks>(multiply_panels);
  });
}

}  // namespace

void avx512_vnni_product_q8_0(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::q8_0>(p);
}
void avx512_vnni_product_q4_k(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::q4_k>(p);
}
void avx512_vnni_product_q5_k(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::q5_k>(p);
}
void avx512_vnni_product_table(const ScaledProduct<int8_t>& p) {
  product<kTable>(p);
}

}  // namespace hocket::cpu
