// Integer products in tiles, 32 rows by two panels at a time, group by group:
//
//   for each two panels: for each group: [int4: unpack its tiles]  for each 32 rows:
//     sums = A . B in int32;  y = fma(float(sums - zero * x_sum), x_scale * scale, y)
//
// One step of the tiles takes 64 k, or 32 if the groups are 32 long.
#include <immintrin.h>

#include <cstring>

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/avx512_group.h"
#include "compute/kernels/cpu/emulated_tiles.h"
#include "compute/kernels/cpu/hardware_tiles.h"

namespace hocket::cpu {
namespace {

constexpr int kTile = 16;
constexpr int kAhead = 4096;  // bytes of int8 that are fetched ahead

// The parts of the calling worker's scratch.
struct Scratch {
  int32_t* sums;      // [32][32]
  std::byte* tiles;   // int4: two panels of one group, unpacked
  int8_t* tail;       // [..][k]: the last rows if they fill no whole tiles, zero-padded
  int64_t tail_rows;  // 0 if there is no tail
};
constexpr int kSumsStride = 2 * kTile;

Scratch make_scratch(const ScaledProduct<int8_t>& p) {
  const int64_t k = int64_t{p.k_blocks} * kIntegerBlockK;
  Scratch s;
  s.sums = static_cast<int32_t*>(p.scratch);
  s.tiles = reinterpret_cast<std::byte*>(s.sums + kTileBlockRows * kSumsStride);
  s.tail = reinterpret_cast<int8_t*>(s.tiles + 2 * kTile * k);
  s.tail_rows = p.rows % kTile == 0 ? 0 : p.rows % kTileBlockRows;
  if (s.tail_rows == 0) return s;
  const int8_t* from = p.x + (p.rows - s.tail_rows) * p.x_stride;
  for (int64_t row = 0; row < kTileBlockRows; ++row)
    if (row < s.tail_rows) {
      std::memcpy(s.tail + row * k, from + row * p.x_stride, k);
    } else {
      std::memset(s.tail + row * k, 0, k);
    }
  return s;
}

// The operands of up to 32 rows by two panels, for one group.
struct Step {
  const int8_t* x;
  int64_t x_stride;
  const std::byte* w[2];
  int steps;    // steps of the tiles
  int k_bytes;  // bytes of k per step: 64 or 32
  bool fetch;   // true: fetch later weights ahead
};

void fetch_lines(const std::byte* from, int bytes) {
  for (int i = 0; i < bytes; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(from + i), _MM_HINT_T1);
}

template <int kRowTiles, int kPanels, class Tiles>
void multiply(Tiles& tiles, const Step& s, int32_t* sums) {
  constexpr int64_t kSumsBytes = kSumsStride * sizeof(int32_t);
  tiles.template zero<0>();
  tiles.template zero<1>();
  tiles.template zero<2>();
  tiles.template zero<3>();
  for (int step = 0; step < s.steps; ++step) {
    const int8_t* a = s.x + int64_t{step} * s.k_bytes;
    const int64_t at = int64_t{step} * s.k_bytes * kTile;
    if (s.fetch)
      for (int i = 0; i < kPanels; ++i) fetch_lines(s.w[i] + at + kAhead, s.k_bytes * kTile);
    tiles.template load<6>(s.w[0] + at, 64);
    tiles.template load<4>(a, s.x_stride);
    tiles.template multiply_bytes<0, 4, 6>();
    if constexpr (kPanels == 2) {
      tiles.template load<7>(s.w[1] + at, 64);
      tiles.template multiply_bytes<1, 4, 7>();
    }
    if constexpr (kRowTiles == 2) {
      tiles.template load<5>(a + kTile * s.x_stride, s.x_stride);
      tiles.template multiply_bytes<2, 5, 6>();
      if constexpr (kPanels == 2) tiles.template multiply_bytes<3, 5, 7>();
    }
  }
  tiles.template store<0>(sums, kSumsBytes);
  if constexpr (kPanels == 2) tiles.template store<1>(sums + kTile, kSumsBytes);
  if constexpr (kRowTiles == 2) tiles.template store<2>(sums + kTile * kSumsStride, kSumsBytes);
  if constexpr (kRowTiles == 2 && kPanels == 2)
    tiles.template store<3>(sums + kTile * kSumsStride + kTile, kSumsBytes);
}

template <class Tiles>
void multiply(Tiles& tiles, const Step& s, int rows, int panels, int32_t* sums) {
  if (rows > kTile) {
    panels == 2 ? multiply<2, 2>(tiles, s, sums) : multiply<2, 1>(tiles, s, sums);
  } else {
    panels == 2 ? multiply<1, 2>(tiles, s, sums) : multiply<1, 1>(tiles, s, sums);
  }
}

// The position of one group in one or two panels.
struct Group {
  int group, panel, panels;
  int first, steps, k_bytes;  // first step, steps, and bytes of k per step
};

template <WeightFormat kFormat>
void end_group(const ScaledProduct<int8_t>& p, const Group& g, int row, int rows,
               const int32_t* sums) {
  for (int i = 0; i < g.panels; ++i) {
    const int64_t at = (int64_t{g.panel + i} * p.groups + g.group) * kPanelN;
    const __m512i zero = load_zeros(p.zeros + at);
    const __m512 scale = load_scales<kFormat>(p.scales, at);
    float* y = p.y + row * p.y_stride + (g.panel + i) * kPanelN;
    int64_t x_at = int64_t{row} * p.groups + g.group;
    for (int r = 0; r < rows; ++r, y += p.y_stride, x_at += p.groups) {
      const __m512i shift = _mm512_mullo_epi32(zero, _mm512_set1_epi32(p.x_sums[x_at]));
      const __m512i sum =
          _mm512_sub_epi32(_mm512_loadu_si512(sums + r * kSumsStride + i * kTile), shift);
      const __m512 both = _mm512_mul_ps(_mm512_set1_ps(p.x_scales[x_at]), scale);
      const __m512 acc = g.group == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(y);
      _mm512_storeu_ps(y, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), both, acc));
    }
  }
}

// Unpacks one half of a block of int4: half 0 is in the low half of each byte, half 1 in the high
// half.
void unpack_half(const std::byte* tile, int half, std::byte* to) {
  for (int i = 0; i < tile_bytes(WeightFormat::int4); i += 64) {
    const __m512i both = _mm512_loadu_si512(tile + i);
    _mm512_storeu_si512(to + i, _mm512_and_si512(half == 0 ? both : _mm512_srli_epi16(both, 4),
                                                 _mm512_set1_epi8(15)));
  }
}

// Returns a panel's weights of one group as bytes: in place, or unpacked for int4.
template <WeightFormat kFormat>
const std::byte* group_weights(const ScaledProduct<int8_t>& p, const Group& g, int panel,
                               std::byte* unpacked) {
  const std::byte* w = p.w + panel * p.panel_bytes;
  if constexpr (kFormat == WeightFormat::int8) return w + int64_t{g.first} * g.k_bytes * kTile;
  constexpr int kHalf = tile_bytes(kFormat);  // an unpacked half is as long as a packed block
  const int halves = g.k_bytes / 32;
  for (int half = 0; half < g.steps * halves; ++half) {
    const int from = g.first * halves + half;
    const std::byte* tile = w + int64_t{from / 2} * kHalf;
    if (half % halves == 0) fetch_lines(tile + kAhead / 2, kHalf);
    unpack_half(tile, from % 2, unpacked + int64_t{half} * kHalf);
  }
  return unpacked;
}

template <WeightFormat kFormat, class Tiles>
void multiply_group(Tiles& tiles, const ScaledProduct<int8_t>& p, const Scratch& scratch,
                    const Group& g) {
  Step step;
  for (int i = 0; i < g.panels; ++i)
    step.w[i] = group_weights<kFormat>(p, g, g.panel + i,
                                       scratch.tiles + int64_t{i} * g.steps * g.k_bytes * kTile);
  step.steps = g.steps;
  step.k_bytes = g.k_bytes;
  const int64_t k = int64_t{g.first} * g.k_bytes;
  for (int row = 0; row < p.rows; row += kTileBlockRows) {
    const int remaining = p.rows - row,
              rows = remaining < kTileBlockRows ? remaining : kTileBlockRows;
    const bool in_tail = scratch.tail_rows > 0 && remaining < kTileBlockRows;
    step.x = (in_tail ? scratch.tail : p.x + row * p.x_stride) + k;
    step.x_stride = in_tail ? int64_t{p.k_blocks} * kIntegerBlockK : p.x_stride;
    step.fetch = kFormat == WeightFormat::int8 && row == 0;
    multiply(tiles, step, rows, g.panels, scratch.sums);
    end_group<kFormat>(p, g, row, rows, scratch.sums);
  }
}

template <class Tiles, WeightFormat kFormat>
void product(const ScaledProduct<int8_t>& p) {
  if (p.rows == 0) return;
  const Scratch scratch = make_scratch(p);
  Group g;
  g.k_bytes = p.group_blocks == 0 ? kIntegerBlockK / 2 : kIntegerBlockK;
  const int all_steps = p.k_blocks * (kIntegerBlockK / g.k_bytes);
  const int group_steps = p.group_blocks == 0 ? 1 : p.group_blocks;
  Tiles tiles;
  tiles.configure(g.k_bytes);
  for (g.panel = 0; g.panel < p.panels; g.panel += 2) {
    g.panels = p.panels - g.panel < 2 ? 1 : 2;
    for (g.group = 0; g.group < p.groups; ++g.group) {
      g.first = g.group * group_steps;
      g.steps = all_steps - g.first < group_steps ? all_steps - g.first : group_steps;
      multiply_group<kFormat>(tiles, p, scratch, g);
    }
  }
  tiles.release();
}

}  // namespace

void amx_product_int8(const ScaledProduct<int8_t>& p) {
  product<HardwareTiles, WeightFormat::int8>(p);
}
void amx_product_int4(const ScaledProduct<int8_t>& p) {
  product<HardwareTiles, WeightFormat::int4>(p);
}
void amx_emulated_product_int8(const ScaledProduct<int8_t>& p) {
  product<EmulatedTiles, WeightFormat::int8>(p);
}
void amx_emulated_product_int4(const ScaledProduct<int8_t>& p) {
  product<EmulatedTiles, WeightFormat::int4>(p);
}

}  // namespace hocket::cpu
