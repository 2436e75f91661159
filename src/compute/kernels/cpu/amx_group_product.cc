// Integer products in tiles for weights whose groups of k are short. The int32 sum of each group is
// scaled and added to an fp32 sum:
//
//   for each two panels: for each span of k: unpack its weights to number - offset
//     for each 16 rows: sums = A . B in int32, a tile for each panel and group
//                       y = fma(float(sums), x_scale * scale, y), in registers, group by group
//
// Formats with a table are unpacked to its numbers. q4_k and q5_k have minima instead of zeros:
// then y = fma(-x_total, min, y), x_total = x_scale * x_sum. The offset of int4 is the zero, that
// of q6_k 32. That of int8 and q8_0 is 128, so that the difference is a signed byte; a group with
// another zero corrects its sums. With scales of 16 numbers a group has two sums, which their
// scales join. All of a span stays in the first cache.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/avx512_group.h"
#include "compute/kernels/cpu/emulated_tiles.h"
#include "compute/kernels/cpu/hardware_tiles.h"
#include "compute/kernels/cpu/prefetch.h"

namespace hocket::cpu {
namespace {

constexpr int kTile = 16;
constexpr int kTileSums = kTile * kTile;
constexpr int kLine = 64;  // bytes: four k of sixteen columns
constexpr int kPanels = 2;
constexpr int kSubBlockK = kIntegerBlockK / 2;      // half a k-block: groups may have 32
constexpr int kSubBlockBytes = kSubBlockK * kTile;  // bytes of unpacked weights
constexpr int kSpanSubBlocks = 2 * kMaxTileGroupBlocks;
constexpr uint8_t kInt8Offset = 128;
// Tables of sums for each group.
template <WeightFormat kFormat>
constexpr int kGroupSums = has_scales_of_16(kFormat) ? 2 : 1;
// Bytes of k in one product where groups have 32.
template <WeightFormat kFormat>
constexpr int kShortK = kSubBlockK / kGroupSums<kFormat>;

// The parts of the calling worker's scratch. Rows are padded to whole tiles with zeros.
struct Scratch {
  int32_t* sums;    // [kPanels][kSpanSubBlocks][16][16]
  float* x_scales;  // [tiles of rows][groups][16]
  int32_t* x_sums;  // as x_scales
  float* x_totals;  // x_scale * x_sum, for minima: overwrites x_sums in place
  int8_t* tail;     // [16][k]: the last rows, if they do not fill a tile
  int8_t* weights;  // [kPanels][kSpanSubBlocks][32][16], unpacked
};

int64_t padded_k(const ScaledProduct<int8_t>& p) {
  return int64_t{p.k_blocks} * kIntegerBlockK;
}

// Transposes the numbers of one tile of rows from [rows][groups] to [groups][16].
template <class T>
void transpose(const T* from, int rows, int groups, T* to) {
  for (int group = 0; group < groups; ++group, to += kTile)
    for (int row = 0; row < kTile; ++row)
      to[row] = row < rows ? from[int64_t{row} * groups + group] : T{};
}

Scratch make_scratch(const ScaledProduct<int8_t>& p) {
  const int64_t k = padded_k(p), tile_scales = int64_t{p.groups} * kTile;
  const int64_t row_tiles = (p.rows + kTile - 1) / kTile;
  Scratch s;
  s.sums = static_cast<int32_t*>(p.scratch);
  s.x_scales = reinterpret_cast<float*>(s.sums + kPanels * kSpanSubBlocks * kTileSums);
  s.x_sums = reinterpret_cast<int32_t*>(s.x_scales + row_tiles * tile_scales);
  s.x_totals = reinterpret_cast<float*>(s.x_sums);
  s.tail = reinterpret_cast<int8_t*>(s.x_sums + row_tiles * tile_scales);
  s.weights = s.tail + kTile * k;
  for (int64_t tile = 0; tile < row_tiles; ++tile) {
    const int64_t row = tile * kTile;
    const int rows = static_cast<int>(std::min<int64_t>(kTile, p.rows - row));
    transpose(p.x_scales + row * p.groups, rows, p.groups, s.x_scales + tile * tile_scales);
    transpose(p.x_sums + row * p.groups, rows, p.groups, s.x_sums + tile * tile_scales);
    if (has_minima(p.format))
      for (int64_t i = tile * tile_scales; i < (tile + 1) * tile_scales; ++i)
        s.x_totals[i] = s.x_scales[i] * static_cast<float>(s.x_sums[i]);
    if (rows == kTile) continue;
    std::memset(s.tail, 0, kTile * k);
    for (int r = 0; r < rows; ++r) std::memcpy(s.tail + r * k, p.x + (row + r) * p.x_stride, k);
  }
  return s;
}

// Some neighbouring groups of k, of two panels. k is counted in sub-blocks, halves of
// k-blocks.
struct Span {
  int panel;  // the first of the two
  int first_group, groups;
  int first_sub_block;
  int sub_blocks;        // fewer than groups * group_sub_blocks if the last group of k is shorter
  int group_sub_blocks;  // sub-blocks of a whole group
  int sums, sum_k;       // tables of sums, and bytes of k of each
  bool is_shifted[kPanels][kSpanSubBlocks];  // for each group: true if one of its zeros is not 128
};

// Unpacks sub-block 0 or 1 of a k-block. offset_or_table: byte i is subtracted from number i; in a
// format with a table it is that table; formats with minima do not use it.
template <WeightFormat kFormat, int kSubBlock>
void unpack_sub_block(const std::byte* block, __m512i offset_or_table, int8_t* to) {
  constexpr int kQuads = kSubBlockBytes / kLine;
#pragma GCC unroll 8
  for (int quad = 0; quad < kQuads; ++quad) {
    __m512i line = numbers_of_quad<kFormat>(block, kSubBlock * kQuads + quad, offset_or_table);
    if constexpr (!has_table(kFormat) && !has_minima(kFormat))
      line = _mm512_sub_epi8(line, offset_or_table);
    _mm512_store_si512(to + quad * kLine, line);
  }
}

// Returns each of sixteen zeros four times, as the numbers of a column lie.
inline __m512i zeros_of_quads(const uint8_t* zeros) {
  return _mm512_mullo_epi32(load_zeros(zeros), _mm512_set1_epi32(0x01010101));
}

// Unpacks panel `panel` of the product, which is panel i of the span.
template <WeightFormat kFormat>
void unpack(const ScaledProduct<int8_t>& p, int panel, int i, Span& span, int8_t* to) {
  const std::byte* w = p.w + int64_t{panel} * p.panel_bytes;
  const int64_t first = (int64_t{panel} * p.groups + span.first_group) * kPanelN;
  constexpr uint8_t kOffset = kFormat == WeightFormat::q6_k ? kQ6kOffset : kInt8Offset;
  __m512i offset_or_table = _mm512_set1_epi8(static_cast<char>(kOffset));
  if constexpr (has_table(kFormat)) offset_or_table = load_table(*p.table, 0);
  for (int sub_block = 0, group = 0; group < span.groups; ++group) {
    if constexpr (kFormat == WeightFormat::int4)
      offset_or_table = zeros_of_quads(p.zeros + first + group * kPanelN);
    span.is_shifted[i][group] = false;
    if constexpr (kFormat == WeightFormat::int8)
      span.is_shifted[i][group] =
          _mm512_cmpneq_epu8_mask(zeros_of_quads(p.zeros + first + group * kPanelN),
                                  offset_or_table) != 0;
    const int end = std::min(sub_block + span.group_sub_blocks, span.sub_blocks);
    for (; sub_block < end; ++sub_block) {
      const int at = span.first_sub_block + sub_block;
      const std::byte* const block = w + int64_t{at / 2} * tile_bytes(kFormat);
      int8_t* const unpacked = to + sub_block * kSubBlockBytes;
      at % 2 == 0 ? unpack_sub_block<kFormat, 0>(block, offset_or_table, unpacked)
                  : unpack_sub_block<kFormat, 1>(block, offset_or_table, unpacked);
    }
  }
}

// Lines of memory that are fetched during products, some after each table of sums.
struct Prefetch {
  const std::byte* from[kPanels];
  int64_t remaining, lines_per_fetch;  // lines of each panel
  void fetch() {
    for (int64_t i = 0; i < lines_per_fetch && remaining > 0; ++i, --remaining)
      for (const std::byte*& at : from) {
        prefetch_l2(at);
        at += kLine;
      }
  }
};

// One tile of quantized rows.
struct TileRows {
  const int8_t* x;
  int64_t stride;
};

// Multiplies 16 rows by two panels. If there is no second panel, its sums are computed and not
// used.
template <class Tiles>
void multiply(Tiles& tiles, const Span& span, TileRows rows, const Scratch& to,
              Prefetch& prefetch) {
  constexpr int64_t kStride = kTile * sizeof(int32_t);
  const int k_bytes = std::min(span.sum_k, kIntegerBlockK);
  const int8_t* w = to.weights;
  int32_t* sums = to.sums;
  int64_t remaining = int64_t{span.sub_blocks} * kSubBlockK;  // bytes of k
  for (int i = 0; i < span.sums; ++i, sums += kTileSums) {
    tiles.template zero<0>();
    tiles.template zero<1>();
    const int64_t end = std::max<int64_t>(0, remaining - span.sum_k);
    for (; remaining > end; remaining -= k_bytes, rows.x += k_bytes, w += k_bytes * kTile) {
      tiles.template load<4>(rows.x, rows.stride);
      tiles.template load<6>(w, kLine);
      tiles.template multiply_signed_bytes<0, 4, 6>();
      tiles.template load<7>(w + kSpanSubBlocks * kSubBlockBytes, kLine);
      tiles.template multiply_signed_bytes<1, 4, 7>();
    }
    prefetch.fetch();
    tiles.template store<0>(sums, kStride);
    tiles.template store<1>(sums + kSpanSubBlocks * kTileSums, kStride);
  }
}

// The sums and scales of 16 rows by one panel.
struct TileSums {
  const int32_t* sums;      // [groups][kGroupSums][16][16]
  const float* x_scales;    // [groups][16]
  const int32_t* x_sums;    // [groups][16]
  const float* x_totals;    // [groups][16]; formats with minima
  const std::byte* scales;  // [groups][16]; block scales: those of the panel
  const uint8_t* zeros;     // [groups][16]
  const bool* is_shifted;   // [groups]
  int first_group;
  float unit;  // the table's
  float* y;
  int64_t y_stride;
  int rows;       // 1..16
  bool is_first;  // true: y starts at +0
};

inline void add_group_with_minima(const TileSums& tile, int group, __m512 (&acc)[kTile]) {
  const GroupScales by = load_group_scales(tile.scales, tile.first_group + group);
  const float* const x_scales = tile.x_scales + group * kTile;
  const float* const x_totals = tile.x_totals + group * kTile;
  const int32_t* const sums = tile.sums + group * kTileSums;
#pragma GCC unroll 16
  for (int r = 0; r < kTile; ++r) {
    const __m512 sum = _mm512_cvtepi32_ps(_mm512_loadu_si512(sums + r * kTile));
    acc[r] = _mm512_fmadd_ps(sum, _mm512_mul_ps(_mm512_set1_ps(x_scales[r]), by.scale), acc[r]);
    acc[r] = _mm512_fnmadd_ps(_mm512_set1_ps(x_totals[r]), by.min, acc[r]);
  }
}
// acc = fma(scale0 * sum0 + scale1 * sum1, x_scale * (d * unit), acc); the sum is exact (see
// avx512_vnni_product_of_16.cc).
inline void add_group_of_16(const TileSums& tile, int group, __m512 (&acc)[kTile]) {
  const ScalesOf16Group by = load_scales_of_16(tile.scales, tile.first_group + group, tile.unit);
  const float* const x_scales = tile.x_scales + group * kTile;
  const int32_t* const sums = tile.sums + 2 * group * kTileSums;
#pragma GCC unroll 16
  for (int r = 0; r < kTile; ++r) {
    __m512 total = _mm512_setzero_ps();
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const __m512i sum = _mm512_loadu_si512(sums + i * kTileSums + r * kTile);
      total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), by.scales[i], total);
    }
    acc[r] = _mm512_fmadd_ps(total, _mm512_mul_ps(_mm512_set1_ps(x_scales[r]), by.factor), acc[r]);
  }
}
// acc = fma(float(sums - (zero - offset) * x_sum), x_scale * scale, acc)
template <WeightFormat kFormat, bool kShifted>
inline void add_group(const TileSums& tile, int group, __m512 (&acc)[kTile]) {
  if constexpr (has_minima(kFormat)) return add_group_with_minima(tile, group, acc);
  if constexpr (has_scales_of_16(kFormat)) return add_group_of_16(tile, group, acc);
  __m512 scale;
  if constexpr (kFormat == kTable) {
    scale = load_table_scales(tile.scales, tile.first_group + group, tile.unit);
  } else {
    scale = load_scales<kFormat>(tile.scales, int64_t{group} * kPanelN);
  }
  const float* x_scales = tile.x_scales + group * kTile;
  const int32_t* x_sums = tile.x_sums + group * kTile;
  const int32_t* sums = tile.sums + group * kTileSums;
  const __m512i shift = kShifted ? _mm512_sub_epi32(load_zeros(tile.zeros + group * kPanelN),
                                                    _mm512_set1_epi32(kInt8Offset))
                                 : _mm512_setzero_si512();
#pragma GCC unroll 16
  for (int r = 0; r < kTile; ++r) {
    __m512i sum = _mm512_loadu_si512(sums + r * kTile);
    if constexpr (kShifted)
      sum = _mm512_sub_epi32(sum, _mm512_mullo_epi32(shift, _mm512_set1_epi32(x_sums[r])));
    const __m512 scale_product = _mm512_mul_ps(_mm512_set1_ps(x_scales[r]), scale);
    acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale_product, acc[r]);
  }
}

template <WeightFormat kFormat>
void add_groups(const TileSums& tile, int groups) {
  __m512 acc[kTile];
#pragma GCC unroll 16
  for (int r = 0; r < kTile; ++r)
    acc[r] = tile.is_first || r >= tile.rows ? _mm512_setzero_ps()
                                             : _mm512_loadu_ps(tile.y + r * tile.y_stride);
  for (int group = 0; group < groups; ++group)
    if (kFormat == WeightFormat::int8 && tile.is_shifted[group]) {
      add_group<kFormat, true>(tile, group, acc);
    } else {
      add_group<kFormat, false>(tile, group, acc);
    }
#pragma GCC unroll 16
  for (int r = 0; r < kTile; ++r)
    if (r < tile.rows) _mm512_storeu_ps(tile.y + r * tile.y_stride, acc[r]);
}

template <WeightFormat kFormat, class Tiles>
void multiply_span(Tiles& tiles, const ScaledProduct<int8_t>& p, const Scratch& scratch, Span& span,
                   Prefetch& prefetch) {
  const int panel = span.panel, panels = std::min(kPanels, p.panels - panel);
  for (int i = 0; i < panels; ++i)
    unpack<kFormat>(p, panel + i, i, span, scratch.weights + i * kSpanSubBlocks * kSubBlockBytes);
  for (int row = 0; row < p.rows; row += kTile) {
    TileSums tile;
    tile.rows = std::min(kTile, p.rows - row);
    const bool in_tail = tile.rows < kTile;
    const int8_t* x = in_tail ? scratch.tail : p.x + row * p.x_stride;
    const TileRows rows = {x + int64_t{span.first_sub_block} * kSubBlockK,
                           in_tail ? padded_k(p) : p.x_stride};
    multiply(tiles, span, rows, scratch, prefetch);
    const int64_t x_at = int64_t{row} * p.groups + int64_t{span.first_group} * kTile;
    tile.x_scales = scratch.x_scales + x_at;
    tile.x_sums = scratch.x_sums + x_at;
    tile.x_totals = scratch.x_totals + x_at;
    tile.first_group = span.first_group;
    tile.unit = has_table(kFormat) ? p.table->unit : 1;
    tile.y_stride = p.y_stride;
    tile.is_first = span.first_group == 0;
    for (int i = 0; i < panels; ++i) {
      const int64_t at = (int64_t{panel + i} * p.groups + span.first_group) * kPanelN;
      tile.sums = scratch.sums + i * kSpanSubBlocks * kTileSums;
      tile.scales = p.scales + (panel + i) * p.panel_scale_bytes;
      if constexpr (!has_block_scales(kFormat))
        tile.scales += int64_t{span.first_group} * kPanelN * scale_size(kFormat);
      tile.zeros = p.zeros == nullptr ? nullptr : p.zeros + at;
      tile.is_shifted = span.is_shifted[i];
      tile.y = p.y + row * p.y_stride + (panel + i) * kPanelN;
      add_groups<kFormat>(tile, span.groups);
    }
  }
}

// Multiplies 1..kMaxTileGroupRows rows.
template <WeightFormat kFormat, class Tiles>
void multiply_rows(Tiles& tiles, const ScaledProduct<int8_t>& p) {
  const Scratch scratch = make_scratch(p);
  Span span;
  span.group_sub_blocks = p.group_blocks == 0 ? 1 : 2 * p.group_blocks;
  span.sum_k = p.group_blocks == 0 ? kShortK<kFormat> : p.group_blocks * kIntegerBlockK;
  const int span_groups = kSpanSubBlocks / span.group_sub_blocks / kGroupSums<kFormat>;
  const int span_sub_blocks = span_groups * span.group_sub_blocks;
  const int all_sub_blocks = p.group_blocks == 0 ? p.groups : 2 * p.k_blocks;
  const int64_t span_bytes = int64_t{span_sub_blocks} / 2 * tile_bytes(kFormat);
  const int64_t lines = span_bytes / kLine;
  const int64_t fetches = int64_t{(p.rows + kTile - 1) / kTile} * span_groups * kGroupSums<kFormat>;
  for (int panel = 0; panel < p.panels; panel += kPanels) {
    const std::byte* const w = p.w + int64_t{panel} * p.panel_bytes;
    span.panel = panel;
    for (int i = 0; i * span_groups < p.groups; ++i) {
      span.first_group = i * span_groups;
      span.groups = std::min(span_groups, p.groups - span.first_group);
      span.sums = span.groups * kGroupSums<kFormat>;
      span.first_sub_block = i * span_sub_blocks;
      span.sub_blocks = std::min(span_sub_blocks, all_sub_blocks - span.first_sub_block);
      // The next span, or the first of the next two panels.
      const bool is_last = span.first_group + span_groups >= p.groups;
      const std::byte* next = w + (is_last ? kPanels * p.panel_bytes : (i + 1) * span_bytes);
      Prefetch prefetch = {{next, next + p.panel_bytes}, lines, (lines + fetches - 1) / fetches};
      multiply_span<kFormat>(tiles, p, scratch, span, prefetch);
    }
  }
}

template <class Tiles, WeightFormat kFormat>
void product(ScaledProduct<int8_t> p) {
  Tiles tiles;
  tiles.configure(p.group_blocks == 0 ? kShortK<kFormat> : kIntegerBlockK);
  for (int remaining = p.rows; remaining > 0; remaining -= p.rows) {
    p.rows = std::min(remaining, kMaxTileGroupRows);
    multiply_rows<kFormat>(tiles, p);
    p.x += p.rows * p.x_stride;
    p.x_scales += int64_t{p.rows} * p.groups;
    p.x_sums += int64_t{p.rows} * p.groups;
    p.y += p.rows * p.y_stride;
  }
  tiles.release();
}

}  // namespace

void amx_group_product_int8(const ScaledProduct<int8_t>& p) {
  product<HardwareTiles, WeightFormat::int8>(p);
}
void amx_group_product_int4(const ScaledProduct<int8_t>& p) {
  product<HardwareTiles, WeightFormat::int4>(p);
}
void amx_group_product_q8_0(const ScaledProduct<int8_t>& p) {
  product<HardwareTiles, WeightFormat::q8_0>(p);
}
void amx_emulated_group_product_q8_0(const ScaledProduct<int8_t>& p) {
  product<EmulatedTiles, WeightFormat::q8_0>(p);
}
void amx_group_product_q4_k(const ScaledProduct<int8_t>& p) {
  product<HardwareTiles, WeightFormat::q4_k>(p);
}
void amx_emulated_group_product_q4_k(const ScaledProduct<int8_t>& p) {
  product<EmulatedTiles, WeightFormat::q4_k>(p);
}
void amx_group_product_q5_k(const ScaledProduct<int8_t>& p) {
  product<HardwareTiles, WeightFormat::q5_k>(p);
}
void amx_emulated_group_product_q5_k(const ScaledProduct<int8_t>& p) {
  product<EmulatedTiles, WeightFormat::q5_k>(p);
}
void amx_group_product_q6_k(const ScaledProduct<int8_t>& p) {
  product<HardwareTiles, WeightFormat::q6_k>(p);
}
void amx_emulated_group_product_q6_k(const ScaledProduct<int8_t>& p) {
  product<EmulatedTiles, WeightFormat::q6_k>(p);
}
void amx_group_product_table_of_16(const ScaledProduct<int8_t>& p) {
  product<HardwareTiles, kTableOf16>(p);
}
void amx_emulated_group_product_table_of_16(const ScaledProduct<int8_t>& p) {
  product<EmulatedTiles, kTableOf16>(p);
}
void amx_group_product_table(const ScaledProduct<int8_t>& p) {
  product<HardwareTiles, kTable>(p);
}
void amx_emulated_group_product_table(const ScaledProduct<int8_t>& p) {
  product<EmulatedTiles, kTable>(p);
}
void amx_emulated_group_product_int8(const ScaledProduct<int8_t>& p) {
  product<EmulatedTiles, WeightFormat::int8>(p);
}
void amx_emulated_group_product_int4(const ScaledProduct<int8_t>& p) {
  product<EmulatedTiles, WeightFormat::int4>(p);
}

}  // namespace hocket::cpu
