#include <algorithm>
#include <cmath>

#include "compute/kernels/arithmetic/product_bodies.h"

namespace hocket::ref {
namespace {

struct Fp8 {
  uint8_t bits;
};
float to_float(Fp8 x) {
  return fp8_to_float(x.bits);
}
using hocket::to_float;

// Adds the k-blocks of sixteen columns of one row: c += (e + o) for each.
template <class X, class W>
void add_blocks(const X* x, const W* w, int k_blocks, float* c) {
  for (int block = 0; block < k_blocks; ++block, x += kBlockK, w += kTileElements) {
    for (int column = 0; column < kPanelN; ++column) {
      float e = 0, o = 0;
      for (int pair = 0; pair < kBlockK / 2; ++pair) {
        const W* both = w + (pair * kPanelN + column) * 2;
        e = std::fma(to_float(x[2 * pair]), to_float(both[0]), e);
        o = std::fma(to_float(x[2 * pair + 1]), to_float(both[1]), o);
      }
      c[column] = c[column] + (e + o);
    }
  }
}

template <class T>
void product(const Product<T>& p) {
  for (int row = 0; row < p.rows; ++row) {
    for (int panel = 0; panel < p.panels; ++panel) {
      float* c = p.y + row * p.y_stride + panel * kPanelN;
      if (!p.accumulate)
        for (int column = 0; column < kPanelN; ++column) c[column] = 0;
      add_blocks(p.x + row * p.x_stride, p.w + panel * p.panel_stride, p.k_blocks, c);
    }
  }
}

// Widens a tile of mxfp4, mxfp8 or nvfp4, whose groups have scales[group][16 columns].
void widen_mx_tile(WeightFormat format, const std::byte* tile, const std::byte* scales, Bf16* to) {
  const int group_k = format == WeightFormat::nvfp4 ? kNvfp4Group : kMxGroup;
  for (int k = 0; k < kBlockK; ++k)
    for (int column = 0; column < kPanelN; ++column) {
      float number;
      if (format == WeightFormat::mxfp8) {
        number = fp8_to_float(static_cast<uint8_t>(tile[k / 2 * 32 + column * 2 + k % 2]));
      } else {
        const auto both = static_cast<int>(tile[k / 8 * 64 + column * 4 + k % 8 / 2]);
        number = e2m1_to_float(k % 2 == 0 ? both : both >> 4);
      }
      const float scale = scale_at(format, scales, k / group_k * kPanelN + column);
      to[k / 2 * 32 + column * 2 + k % 2] = from_float<Bf16>(number * scale);
    }
}

// Return number k of one column of a panel.
int int8_number(const uint8_t* panel, int k, int column) {
  return panel[k / 64 * 1024 + k % 64 / 4 * 64 + column * 4 + k % 4];
}
int int4_number(const uint8_t* panel, int k, int column) {
  const int both = panel[k / 64 * 512 + k % 32 / 4 * 64 + column * 4 + k % 4];
  return k % 64 < 32 ? both & 15 : both >> 4;
}
// The same for formats with kBits upper bits in lines of their own.
template <int kBits>
int k_number(const uint8_t* panel, int k, int column) {
  constexpr int kPartQuads = 4 / kBits, kPartBytes = (kPartQuads + 1) * 64;
  constexpr int kParts = 8 / kPartQuads, kMask = (1 << kBits) - 1;
  const int quad = k % 32 / 4, high = k % 64 / 32, in_part = quad % kPartQuads;
  const uint8_t* const part =
      panel + (k / 64 * kParts + quad / kPartQuads) * kPartBytes + column * 4 + k % 4;
  const int upper = part[kPartQuads * 64] >> kBits * (2 * in_part + high) & kMask;
  return (part[in_part * 64] >> 4 * high & 15) | upper << 4;
}

// Returns the product of one row and one column.
template <WeightFormat kFormat, class Number>
float dot(const ScaledProduct<int8_t>& p, int row, int panel, int column, Number number) {
  const auto* w = reinterpret_cast<const uint8_t*>(p.w + panel * p.panel_bytes);
  const int group_k = p.group_blocks == 0 ? kIntegerBlockK / 2 : p.group_blocks * kIntegerBlockK;
  float acc = 0;
  for (int group = 0; group < p.groups; ++group) {
    int32_t sum = 0;
    const int end = std::min((group + 1) * group_k, p.k_blocks * kIntegerBlockK);
    for (int k = group * group_k; k < end; ++k)
      sum += p.x[row * p.x_stride + k] * number(w, k, column);
    const int64_t at = (int64_t{panel} * p.groups + group) * kPanelN + column;
    const int64_t x_at = int64_t{row} * p.groups + group;
    const int zero = kFormat == WeightFormat::q8_0 ? 128 : p.zeros[at];
    const int32_t s = sum - zero * p.x_sums[x_at];
    acc = std::fma(static_cast<float>(s), p.x_scales[x_at] * scale_at(kFormat, p.scales, at), acc);
  }
  return acc;
}

// Returns the product of one row and one column of q4_k or q5_k.
template <class Number>
float dot_with_minima(const ScaledProduct<int8_t>& p, int row, int panel, int column,
                      Number number) {
  const auto* const w = reinterpret_cast<const uint8_t*>(p.w + panel * p.panel_bytes);
  const auto* const blocks =
      reinterpret_cast<const Q4kScales*>(p.scales + panel * p.panel_scale_bytes);
  float acc = 0;
  for (int group = 0; group < p.groups; ++group) {
    int32_t sum = 0;
    for (int k = group * kGgufGroup; k < (group + 1) * kGgufGroup; ++k)
      sum += p.x[row * p.x_stride + k] * number(w, k, column);
    const Q4kScales& block = blocks[group / kScaleBlockGroups];
    const int in_block = group % kScaleBlockGroups;
    const float scale = f16_to_float(block.d[column]) * block.scales[in_block][column];
    const float min = f16_to_float(block.dmin[column]) * block.mins[in_block][column];
    const int64_t x_at = int64_t{row} * p.groups + group;
    const float x_total = p.x_scales[x_at] * static_cast<float>(p.x_sums[x_at]);
    acc = std::fma(static_cast<float>(sum), p.x_scales[x_at] * scale, acc);
    acc = std::fma(-x_total, min, acc);
  }
  return acc;
}

// The same for formats with a table.
float dot_table(const ScaledProduct<int8_t>& p, int row, int panel, int column) {
  const auto* const w = reinterpret_cast<const uint8_t*>(p.w + panel * p.panel_bytes);
  const auto* const blocks =
      reinterpret_cast<const TableScales*>(p.scales + panel * p.panel_scale_bytes);
  float acc = 0;
  for (int group = 0; group < p.groups; ++group) {
    int32_t sum = 0;
    for (int k = group * kGgufGroup; k < (group + 1) * kGgufGroup; ++k)
      sum += p.x[row * p.x_stride + k] * p.table->numbers[int4_number(w, k, column)];
    const TableScales& block = blocks[group / kScaleBlockGroups];
    const float unit = f16_to_float(block.d[column]) * p.table->unit;
    const float scale = unit * block.scales[group % kScaleBlockGroups][column];
    acc =
        std::fma(static_cast<float>(sum), p.x_scales[int64_t{row} * p.groups + group] * scale, acc);
  }
  return acc;
}

// The same for formats with scales of 16 numbers; number(panel, k, column) may be negative.
template <class Number>
float dot_scales_of_16(const ScaledProduct<int8_t>& p, int row, int panel, int column,
                       Number number) {
  const auto* const w = reinterpret_cast<const uint8_t*>(p.w + panel * p.panel_bytes);
  const auto* const blocks =
      reinterpret_cast<const ScalesOf16*>(p.scales + panel * p.panel_scale_bytes);
  const float unit = p.table == nullptr ? 1 : p.table->unit;
  float acc = 0;
  for (int group = 0; group < p.groups; ++group) {
    const ScalesOf16& block = blocks[group / kScaleBlockGroups];
    int32_t sum = 0;
    for (int k = group * kGgufGroup; k < (group + 1) * kGgufGroup; ++k)
      sum += block.scales[k % kScaleBlock / 16][column] * p.x[row * p.x_stride + k] *
             number(w, k, column);
    const float scale = f16_to_float(block.d[column]) * unit;
    acc =
        std::fma(static_cast<float>(sum), p.x_scales[int64_t{row} * p.groups + group] * scale, acc);
  }
  return acc;
}

// Computes y; dot(row, panel, column) gives one of its numbers.
template <class Dot>
void for_each_result(const ScaledProduct<int8_t>& p, Dot dot) {
  for (int row = 0; row < p.rows; ++row)
    for (int column = 0; column < p.panels * kPanelN; ++column)
      p.y[row * p.y_stride + column] = dot(row, column / kPanelN, column % kPanelN);
}

template <WeightFormat kFormat, class Number>
void integer_product(const ScaledProduct<int8_t>& p, Number number) {
  for_each_result(p, [&](int row, int panel, int column) {
    return dot<kFormat>(p, row, panel, column, number);
  });
}

}  // namespace

void product_bf16(const Product<Bf16>& p) {
  product(p);
}
void product_f32(const Product<float>& p) {
  product(p);
}

void product_fp8(const ScaledProduct<Bf16>& p) {
  for (int row = 0; row < p.rows; ++row)
    for (int panel = 0; panel < p.panels; ++panel) {
      float acc[kPanelN] = {};
      for (int group = 0; group < p.groups; ++group) {
        float c[kPanelN] = {};
        const int64_t first = int64_t{group} * p.group_blocks;
        const auto* w = reinterpret_cast<const Fp8*>(p.w + panel * p.panel_bytes);
        add_blocks(p.x + row * p.x_stride + first * kBlockK, w + first * kTileElements,
                   std::min(p.group_blocks, p.k_blocks - static_cast<int>(first)), c);
        const int64_t at = (int64_t{panel} * p.groups + group) * kPanelN;
        for (int i = 0; i < kPanelN; ++i)
          acc[i] = std::fma(c[i], scale_at(WeightFormat::fp8, p.scales, at + i), acc[i]);
      }
      std::copy(acc, acc + kPanelN, p.y + row * p.y_stride + panel * kPanelN);
    }
}

void product_mx(const ScaledProduct<Bf16>& p) {
  Bf16 tile[kTileElements];
  for (int panel = 0; panel < p.panels; ++panel) {
    for (int row = 0; row < p.rows; ++row)
      std::fill_n(p.y + row * p.y_stride + panel * kPanelN, kPanelN, 0.0f);
    for (int block = 0; block < p.k_blocks; ++block) {
      const int64_t group = int64_t{panel} * p.groups + block * (p.groups / p.k_blocks);
      widen_mx_tile(p.format, p.w + panel * p.panel_bytes + block * int64_t{tile_bytes(p.format)},
                    p.scales + group * kPanelN, tile);
      for (int row = 0; row < p.rows; ++row)
        add_blocks(p.x + row * p.x_stride + block * kBlockK, tile, 1,
                   p.y + row * p.y_stride + panel * kPanelN);
    }
  }
}

void product_int8(const ScaledProduct<int8_t>& p) {
  integer_product<WeightFormat::int8>(p, int8_number);
}
void product_int4(const ScaledProduct<int8_t>& p) {
  integer_product<WeightFormat::int4>(p, int4_number);
}
void product_q8_0(const ScaledProduct<int8_t>& p) {
  integer_product<WeightFormat::q8_0>(p, int8_number);
}
void product_q4_k(const ScaledProduct<int8_t>& p) {
  for_each_result(p, [&](int row, int panel, int column) {
    return dot_with_minima(p, row, panel, column, int4_number);
  });
}
void product_q5_k(const ScaledProduct<int8_t>& p) {
  for_each_result(p, [&](int row, int panel, int column) {
    return dot_with_minima(p, row, panel, column, k_number<1>);
  });
}
void product_q6_k(const ScaledProduct<int8_t>& p) {
  for_each_result(p, [&](int row, int panel, int column) {
    return dot_scales_of_16(p, row, panel, column, [](const uint8_t* w, int k, int at) {
      return k_number<2>(w, k, at) - kQ6kOffset;
    });
  });
}
void product_table(const ScaledProduct<int8_t>& p) {
  for_each_result(p,
                  [&](int row, int panel, int column) { return dot_table(p, row, panel, column); });
}
void product_table_of_16(const ScaledProduct<int8_t>& p) {
  for_each_result(p, [&](int row, int panel, int column) {
    return dot_scales_of_16(p, row, panel, column, [&](const uint8_t* w, int k, int at) {
      return p.table->numbers[int4_number(w, k, at)];
    });
  });
}

}  // namespace hocket::ref
