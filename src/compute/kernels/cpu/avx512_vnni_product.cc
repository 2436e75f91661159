// int8 and int4 weights times int8 rows by VNNI: unsigned weights, signed rows, four k at a time.
//   up to 8 rows, groups of 32   one panel at a time, read in memory order
//   more rows                    two panels at a time, in blocks of rows whose sums and results
//                                both fit into registers; int4 may be unpacked once for many rows
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/avx512_group.h"
#include "compute/kernels/cpu/prefetch.h"
#include "compute/kernels/cpu/row_counts.h"

namespace hocket::cpu {
namespace {

constexpr int kHalfQuads = kIntegerBlockK / 8;
constexpr int kPanels = 2;  // that many rows use at once
// Rows in such a block. Long groups use registers for sums that short groups leave to results.
template <bool kShort>
constexpr int kPanelsRows = kShort ? 6 : 8;
// From this many rows on, int4 is unpacked once for all of them, unless it is multiplied in place.
constexpr int kUnpackRows = 48;
// Groups of at most this many blocks have an x_sum within 16 bits.
constexpr int kShortGroupBlocks = 0x7fff / (127 * kIntegerBlockK);
// Distances of fetching ahead for few rows: bytes to L2 and to L1, and groups of scales. These are
// the best of the values tried.
constexpr int kFar = 8192, kGroupsAhead = 8;
template <WeightFormat kFormat>
constexpr int kNear = tile_bytes(kFormat) == tile_bytes(WeightFormat::int8) ? 1024 : 2048;

// Returns how many halves of a block share a line: two in formats of four bits, one in those of
// eight.
constexpr int halves_a_line(WeightFormat format) {
  return tile_bytes(format) == tile_bytes(WeightFormat::int8) ? 1 : 2;
}
template <WeightFormat kFormat>
inline __m512i half_of_line(__m512i line, int half) {
  if constexpr (halves_a_line(kFormat) == 1) return line;
  return _mm512_and_si512(half == 0 ? line : _mm512_srli_epi16(line, 4), _mm512_set1_epi8(15));
}

inline bool has_short_groups(const ScaledProduct<int8_t>& p) {
  return p.group_blocks <= kShortGroupBlocks;
}

// The operands of one panel.
struct Panel {
  const int8_t* x;
  const float* x_scales;
  const int32_t* x_sums;
  const std::byte* w;
  const std::byte* scales;
  const uint8_t* zeros;
  float* y;
};
inline Panel panel_at(const ScaledProduct<int8_t>& p, int row, int panel) {
  const int64_t x_at = int64_t{row} * p.groups, at = int64_t{panel} * p.groups * kPanelN;
  return {.x = p.x + row * p.x_stride,
          .x_scales = p.x_scales + x_at,
          .x_sums = p.x_sums + x_at,
          .w = p.w + panel * p.panel_bytes,
          .scales = p.scales + panel * p.panel_scale_bytes,
          .zeros = p.zeros + at,
          .y = p.y + row * p.y_stride + panel * kPanelN};
}

template <class V, int R>
inline void clear(V (&all)[R]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) all[r] = V{};
}

// Starts the sums of a group of one panel at - zero * x_sum. The x_sum of a short group fits into
// 16 bits.
template <int R>
inline void begin_group(const Panel& p, int groups, int group, bool is_short, __m512i (&sums)[R]) {
  const __m512i none = _mm512_setzero_si512(), zero = load_zeros(p.zeros + group * kPanelN);
  const __m512i negative = is_short ? _mm512_sub_epi16(none, zero) : _mm512_sub_epi32(none, zero);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m512i x_sum = _mm512_set1_epi32(p.x_sums[int64_t{r} * groups + group]);
    sums[r] = is_short ? _mm512_madd_epi16(negative, x_sum) : _mm512_mullo_epi32(negative, x_sum);
  }
}
// acc = fma(float(sum), x_scale * scale, acc)
template <WeightFormat kFormat, int R>
inline void finish_group(const Panel& p, int groups, int group, const __m512i (&sums)[R],
                         __m512 (&acc)[R]) {
  const __m512 scale = load_scales<kFormat>(p.scales, group * kPanelN);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m512 x_scale = _mm512_set1_ps(p.x_scales[int64_t{r} * groups + group]);
    acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r]), _mm512_mul_ps(x_scale, scale), acc[r]);
  }
}

// Multiplies one block. Each half has its own sums, because groups of 32 end with a half. Lines are
// read in memory order.
template <int R, WeightFormat kFormat, bool kFetches>
inline void multiply_block(const int8_t* x, const std::byte* tile, __m512i (&sums)[2][R]) {
  constexpr int kHalves = halves_a_line(kFormat), kSteps = 2 * kHalfQuads / kHalves;
  constexpr int kLines = tile_bytes(kFormat) / kNibbleLineBytes;
#pragma GCC unroll 16
  for (int q = 0; q < kSteps; ++q) {
#pragma GCC unroll 2
    for (int line = q * kLines / kSteps; kFetches && line < (q + 1) * kLines / kSteps; ++line) {
      prefetch_l2(tile + kFar + line * kNibbleLineBytes);
      prefetch_l1(tile + kNear<kFormat> + line * kNibbleLineBytes);
    }
#pragma GCC unroll 2
    for (int i = 0; i < kHalves; ++i) {
      const int half = kHalves == 1 ? q / kHalfQuads : i;
      const __m512i w =
          numbers_of_quad<kFormat>(tile, q % kHalfQuads + half * kHalfQuads, __m512i{});
      const int8_t* a = x + half * kIntegerBlockK / 2 + q % kHalfQuads * 4;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
        sums[half][r] = _mm512_dpbusd_epi32(sums[half][r], w, row_quad(a + r * kIntegerBlockK));
    }
  }
}

template <WeightFormat kFormat>
inline void fetch_scales(const Panel& p, int group) {
  prefetch_l1(p.scales + group * kPanelN * scale_size(kFormat));
  prefetch_l1(p.zeros + group * kPanelN);
}

// Multiplies one panel; x is [k_blocks][R][64].
template <int R, WeightFormat kFormat, bool kFetches>
void multiply_panel(const ScaledProduct<int8_t>& all, const Panel& p) {
  const bool are_halves = all.group_blocks == 0, are_short = has_short_groups(all);
  __m512i sums[2][R];
  __m512 acc[R];
  clear(acc);
  for (int group = 0, block = 0; block < all.k_blocks; ++group) {
    begin_group(p, all.groups, group, are_short, sums[0]);
    const bool has_second = are_halves && group + 1 < all.groups;
    if (has_second) {
      begin_group(p, all.groups, group + 1, are_short, sums[1]);
    } else {
      clear(sums[1]);
    }
    const int end = std::min(block + std::max(all.group_blocks, 1), all.k_blocks);
    do {
      multiply_block<R, kFormat, kFetches>(p.x + int64_t{block} * R * kIntegerBlockK,
                                           p.w + int64_t{block} * tile_bytes(kFormat), sums);
    } while (++block < end);
    if constexpr (kFetches) fetch_scales<kFormat>(p, group + kGroupsAhead);
    if (!are_halves)
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sums[0][r] = _mm512_add_epi32(sums[0][r], sums[1][r]);
    finish_group<kFormat>(p, all.groups, group, sums[0], acc);
    if (has_second) finish_group<kFormat>(p, all.groups, ++group, sums[1], acc);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) _mm512_storeu_ps(p.y + r * all.y_stride, acc[r]);
}

// Multiplies all panels with R rows.
template <int R, WeightFormat kFormat>
void multiply_rows(const ScaledProduct<int8_t>& p, int row) {
  int8_t* x = static_cast<int8_t*>(p.scratch);
  for (int block = 0; block < p.k_blocks; ++block)
    for (int r = 0; r < R; ++r)
      std::memcpy(x + (block * R + r) * kIntegerBlockK,
                  p.x + (row + r) * p.x_stride + block * kIntegerBlockK, kIntegerBlockK);
  const auto multiply_panels = [&](auto fetches) {
    for (int panel = 0; panel < p.panels; ++panel) {
      Panel one = panel_at(p, row, panel);
      one.x = x;
      multiply_panel<R, kFormat, fetches()>(p, one);
    }
  };
  with_prefetch<R == 1 && kFormat == WeightFormat::int8>(multiply_panels);
}

// Two panels of the same rows. The second panel's lines are `lines_stride` bytes after the first's.
struct TwoPanels {
  Panel panels[kPanels];
  const std::byte* lines;
  int64_t lines_stride;
};

// Multiplies one block of two panels.
template <int R, WeightFormat kFormat>
inline void multiply_two_panels_block(const int8_t* const (&x)[R], int64_t x_at,
                                      const std::byte* lines, int64_t stride,
                                      __m512i (&sums)[kPanels][R]) {
  constexpr int kHalves = halves_a_line(kFormat);
#pragma GCC unroll 16
  for (int q = 0; q < 2 * kHalfQuads / kHalves; ++q) {
    const __m512i first = _mm512_loadu_si512(lines + q * kNibbleLineBytes);
    const __m512i second = _mm512_loadu_si512(lines + stride + q * kNibbleLineBytes);
#pragma GCC unroll 2
    for (int half = 0; half < kHalves; ++half) {
      const __m512i w[kPanels] = {half_of_line<kFormat>(first, half),
                                  half_of_line<kFormat>(second, half)};
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512i a = row_quad(x[r] + x_at + half * kIntegerBlockK / 2 + q * 4);
        sums[0][r] = _mm512_dpbusd_epi32(sums[0][r], w[0], a);
        sums[1][r] = _mm512_dpbusd_epi32(sums[1][r], w[1], a);
      }
    }
  }
}

// Lines to fetch during the multiplication.
struct PrefetchLines {
  const std::byte* from = nullptr;
  int lines = 0;  // lines per block
};

// Multiplies R rows with two panels of kFormat, stored as kLines or unpacked to it. Groups
// consist of whole blocks.
template <int R, WeightFormat kFormat, WeightFormat kLines, bool kShort>
void multiply_two_panels(const ScaledProduct<int8_t>& all, const TwoPanels& p,
                         PrefetchLines& ahead) {
  const int8_t* x[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) x[r] = p.panels[0].x + r * all.x_stride;
  __m512 acc[kPanels][R];
  clear(acc[0]), clear(acc[1]);
  for (int group = 0, block = 0; group < all.groups; ++group) {
    __m512i sums[kPanels][R];
    begin_group(p.panels[0], all.groups, group, kShort, sums[0]);
    begin_group(p.panels[1], all.groups, group, kShort, sums[1]);
    const int end = std::min(block + all.group_blocks, all.k_blocks);
    do {
      for (int i = 0; i < ahead.lines; ++i, ahead.from += kNibbleLineBytes) prefetch_l1(ahead.from);
      multiply_two_panels_block<R, kLines>(x, int64_t{block} * kIntegerBlockK,
                                           p.lines + int64_t{block} * tile_bytes(kLines),
                                           p.lines_stride, sums);
    } while (++block < end);
    finish_group<kFormat>(p.panels[0], all.groups, group, sums[0], acc[0]);
    finish_group<kFormat>(p.panels[1], all.groups, group, sums[1], acc[1]);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    _mm512_storeu_ps(p.panels[0].y + r * all.y_stride, acc[0][r]);
    _mm512_storeu_ps(p.panels[1].y + r * all.y_stride, acc[1][r]);
  }
}

// Unpacks int4 to one line for four k.
void unpack_int4(const std::byte* from, int64_t blocks, std::byte* to) {
  for (; blocks > 0; --blocks, to += tile_bytes(WeightFormat::int8))
    for (int q = 0; q < kHalfQuads; ++q, from += kNibbleLineBytes) {
      const __m512i line = _mm512_loadu_si512(from);
      _mm512_store_si512(to + q * kNibbleLineBytes, half_of_line<WeightFormat::int4>(line, 0));
      _mm512_store_si512(to + (q + kHalfQuads) * kNibbleLineBytes,
                         half_of_line<WeightFormat::int4>(line, 1));
    }
}

// Multiplies all rows with the two panels from `panel` on, in blocks of rows as equal as
// possible. While it computes, it fetches the next two; after the last two, the memory that
// follows, which is most often the next task's.
template <WeightFormat kFormat, bool kUnpacks, bool kShort>
void multiply_all_rows(const ScaledProduct<int8_t>& p, int panel) {
  constexpr int kMax = kPanelsRows<kShort>;
  const int row_blocks = (p.rows + kMax - 1) / kMax;
  const int lines = static_cast<int>(kPanels * p.panel_bytes / kNibbleLineBytes / p.k_blocks);
  PrefetchLines ahead = {p.w + (panel + kPanels) * p.panel_bytes,
                         (lines + row_blocks - 1) / row_blocks};
  const auto multiply_by = [&]<WeightFormat kLines>(const std::byte* w, int64_t stride) {
    for (int block = 0, row = 0; block < row_blocks; ++block) {
      const int end = static_cast<int>(int64_t{p.rows} * (block + 1) / row_blocks);
      const TwoPanels panels = {{panel_at(p, row, panel), panel_at(p, row, panel + 1)}, w, stride};
      with_rows<kMax>(end - row, [&](auto count) {
        multiply_two_panels<count(), kFormat, kLines, kShort>(p, panels, ahead);
      });
      row = end;
    }
  };
  const std::byte* const w = p.w + panel * p.panel_bytes;
  if (!kUnpacks || p.rows < kUnpackRows)
    return multiply_by.template operator()<kFormat>(w, p.panel_bytes);
  auto* const unpacked = static_cast<std::byte*>(p.scratch);
  unpack_int4(w, int64_t{kPanels} * p.k_blocks, unpacked);
  multiply_by.template operator()<WeightFormat::int8>(
      unpacked, int64_t{p.k_blocks} * tile_bytes(WeightFormat::int8));
}

template <WeightFormat kFormat, bool kUnpacks>
void product(ScaledProduct<int8_t> p) {
  if (p.rows > kVectorRows && p.group_blocks > 0) {
    int panel = 0;
    for (; panel + kPanels <= p.panels; panel += kPanels)
      has_short_groups(p) ? multiply_all_rows<kFormat, kUnpacks, true>(p, panel)
                          : multiply_all_rows<kFormat, kUnpacks, false>(p, panel);
    const Panel rest = panel_at(p, 0, panel);
    p.w = rest.w, p.scales = rest.scales, p.zeros = rest.zeros, p.y = rest.y;
    p.panels -= panel;
  }
  if (p.panels > 0)
    for_each_rows<kVectorRows>(
        p.rows, [&](auto count, int row) { multiply_rows<count(), kFormat>(p, row); });
}

}  // namespace

void avx512_vnni_product_int8(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::int8, false>(p);
}
void avx512_vnni_product_int4(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::int4, true>(p);
}
void avx512_vnni_product_int4_in_place(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::int4, false>(p);
}

}  // namespace hocket::cpu
