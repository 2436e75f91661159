// Products with weights under scales: shapes and numbers for tests and benches.
#pragma once

#include <algorithm>
#include <vector>

#include "compute/kernels/cases/linear_cases.h"

namespace hocket::cases {

struct ScaledCase {
  WeightFormat format;
  int group;  // 0: one group over all k
  int rows, k, n;
};

// Formats of GGUF, in groups of 32; those with a table have the same bodies.
inline constexpr WeightFormat kGgufFormats[] = {
    WeightFormat::q8_0, WeightFormat::q4_k, WeightFormat::q5_k, WeightFormat::q6_k,
    WeightFormat::iq4,  WeightFormat::iq2,  WeightFormat::q3_k, WeightFormat::iq2_s};

constexpr int mx_group(WeightFormat format) {
  return format == WeightFormat::nvfp4 ? kNvfp4Group : kMxGroup;
}
// Returns true if rows of bf16 are multiplied by such weights, false if they are quantized.
constexpr bool takes_bf16(WeightFormat format) {
  return format == WeightFormat::fp8 || is_mx(format);
}

// Every format and group, every count of rows that a body treats differently, k that ends inside
// blocks and groups, n inside panels.
inline std::vector<ScaledCase> scaled_cases() {
  std::vector<ScaledCase> list;
  const auto add = [&](int rows, int k, int n) {
    list.push_back({WeightFormat::fp8, kFp8Group, rows, k, n});
    for (WeightFormat format : {WeightFormat::mxfp4, WeightFormat::mxfp8, WeightFormat::nvfp4})
      list.push_back({format, mx_group(format), rows, k, n});
    for (WeightFormat format : {WeightFormat::int8, WeightFormat::int4})
      for (int group : {32, 64, 128, 0}) list.push_back({format, group, rows, k, n});
    for (WeightFormat format : kGgufFormats) list.push_back({format, kGgufGroup, rows, k, n});
  };
  for (int rows : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 32, 33, 70}) add(rows, 160, 48);
  for (int k : {1, 31, 32, 33, 64, 65, 96, 100, 128, 129, 200, 511, 1000})
    for (int rows : {1, 3, 8, 20}) add(rows, k, 17);
  for (int n : {1, 16, 40, 100})
    for (int rows : {2, 8, 35}) add(rows, 256, n);
  for (int rows : {48, 150}) add(rows, 600, 33);
  return list;
}

// A matrix as stored numbers and packed.
struct ScaledMatrix {
  std::vector<uint8_t> numbers;  // [n, k]
  Buffer memory;
  std::vector<float> bias, column_scales;  // [n]
  PackedWeight weight;                     // has neither

  // Returns the minimum of the number's group, which only q4_k and q5_k have.
  double minimum(int n, int k) const {
    if (!has_minima(weight.format)) return 0;
    const Q4kScales& block = weight.block_scales<Q4kScales>(n, k / weight.group);
    const int column = n % kPanelN, group = k / weight.group % kScaleBlockGroups;
    return f16_to_float(block.dmin[column]) * block.mins[group][column];
  }
  // Returns the value that number (n, k) stands for, without the column's scale.
  double value(int n, int k) const {
    const uint8_t number = numbers[int64_t{n} * weight.k + k];
    if (has_minima(weight.format)) {
      const Q4kScales& block = weight.block_scales<Q4kScales>(n, k / weight.group);
      const int column = n % kPanelN, group = k / weight.group % kScaleBlockGroups;
      const double scale = f16_to_float(block.d[column]) * block.scales[group][column];
      return scale * number - minimum(n, k);
    }
    if (has_scales_of_16(weight.format)) {
      const auto& block = weight.block_scales<ScalesOf16>(n, k / weight.group);
      const double d = f16_to_float(block.d[n % kPanelN]);
      const double scale = d * block.scales[k % kScaleBlock / 16][n % kPanelN];
      if (weight.format == WeightFormat::q6_k) return scale * (number - kQ6kOffset);
      const NumberTable& table = number_table(weight.format);
      return scale * table.unit * table.numbers[number];
    }
    if (has_table(weight.format)) {
      const auto& block = weight.block_scales<TableScales>(n, k / weight.group);
      const NumberTable& table = number_table(weight.format);
      const double scale = f16_to_float(block.d[n % kPanelN]) * table.unit;
      const int group = k / weight.group % kScaleBlockGroups;
      return scale * block.scales[group][n % kPanelN] * table.numbers[number];
    }
    const int64_t at = weight.scale_index(n, k / weight.group);
    const bool fp8 = weight.format == WeightFormat::fp8 || weight.format == WeightFormat::mxfp8;
    const double plain = fp8                    ? static_cast<double>(fp8_to_float(number))
                         : is_mx(weight.format) ? static_cast<double>(e2m1_to_float(number))
                         : weight.format == WeightFormat::q8_0 ? number - 128
                                                               : number - weight.zeros[at];
    return plain * static_cast<double>(scale_at(weight.format, weight.scales, at));
  }
};

inline uint8_t random_number(WeightFormat format, std::mt19937& random) {
  while (true) {
    const auto byte = static_cast<uint8_t>(random());
    if (format == WeightFormat::q5_k) return byte & 31;
    if (format == WeightFormat::q6_k) return byte & 63;
    if (format == WeightFormat::int4 || has_block_scales(format) || format == WeightFormat::mxfp4 ||
        format == WeightFormat::nvfp4)
      return byte & 15;
    if (format == WeightFormat::int8 || format == WeightFormat::q8_0 || (byte & 0x7f) != 0x7f)
      return byte;
  }
}

// Returns one scale in the format; one of nine is zero. Those of mxfp4 and mxfp8 reach from the
// least to the largest with which every number is zero or a normal bf16, if `kind` is heavy_tails.
inline float random_scale(WeightFormat format, Values kind, std::mt19937& random) {
  if (random() % 9 == 0) return 0;
  std::normal_distribution<float> normal;
  if (!is_mx(format)) return normal(random) * 0.03f;
  if (format == WeightFormat::nvfp4) return fp8_to_float(static_cast<uint8_t>(random() % 0x7f));
  const int least = format == WeightFormat::mxfp4 ? 2 : 10,
            most = format == WeightFormat::mxfp4 ? 252 : 246;
  return e8m0_to_float(static_cast<uint8_t>(
      kind == Values::heavy_tails ? least + random() % (most - least + 1) : 118 + random() % 8));
}

inline void pack_numbers(View<const uint8_t> rows, int64_t row_begin, const PackedWeight& w) {
  auto* to = static_cast<uint8_t*>(const_cast<void*>(w.data));
  if (w.format == WeightFormat::q5_k) return pack_q5_k_rows(rows, row_begin, to);
  if (w.format == WeightFormat::q6_k) return pack_q6_k_rows(rows, row_begin, to);
  if (w.format == WeightFormat::int4 || has_block_scales(w.format))
    return pack_int4_rows(rows, row_begin, to);
  if (w.format == WeightFormat::int8 || w.format == WeightFormat::q8_0)
    return pack_int8_rows(rows, row_begin, to);
  if (w.format == WeightFormat::mxfp4 || w.format == WeightFormat::nvfp4)
    return pack_fp4_rows(rows, row_begin, to);
  pack_rows<uint8_t>(rows, row_begin, to);
}

inline uint16_t random_half(std::mt19937& random) {
  return float_to_f16(random_scale(WeightFormat::int4, Values::normal, random));
}
inline void fill(std::mt19937& random, Q4kScales& block) {
  for (uint16_t& d : block.d) d = random_half(random);
  for (uint16_t& dmin : block.dmin) dmin = random_half(random);
  for (auto* const integers : {&block.scales, &block.mins})
    for (auto& group : *integers)
      for (uint8_t& integer : group) integer = static_cast<uint8_t>(random() % 64);
}
template <class S>  // TableScales or ScalesOf16
void fill(std::mt19937& random, S& block) {
  for (uint16_t& d : block.d) d = random_half(random);
  for (auto& group : block.scales)
    for (int8_t& integer : group) integer = static_cast<int8_t>(random());
}
template <class S>
void fill_block_scales(std::mt19937& random, const PackedWeight& w) {
  auto* const blocks = reinterpret_cast<S*>(const_cast<std::byte*>(w.scales));
  const int64_t count = w.panels() * w.panel_scale_bytes() / int64_t{sizeof(S)};
  for (S& block : std::span(blocks, static_cast<size_t>(count))) fill(random, block);
}

// Makes a random matrix in which one of nine scales is zero.
inline ScaledMatrix scaled_matrix(const ScaledCase& c, std::mt19937& random,
                                  Values scales_kind = Values::normal) {
  ScaledMatrix m;
  PackedWeight& w = m.weight;
  w.format = c.format;
  w.n = c.n;
  w.k = c.k;
  w.group = c.group != 0 ? c.group : static_cast<int>(round_up(c.k, kIntegerBlockK));
  m.memory = *Buffer::allocate(w.bytes());
  std::byte* const scales = m.memory.data() + w.data_bytes();
  auto* const zeros = reinterpret_cast<uint8_t*>(scales + w.scale_bytes());
  w.data = m.memory.data();
  w.scales = scales;
  if (has_minima(c.format)) {
    fill_block_scales<Q4kScales>(random, w);
  } else if (has_scales_of_16(c.format)) {
    fill_block_scales<ScalesOf16>(random, w);
  } else if (has_table(c.format)) {
    fill_block_scales<TableScales>(random, w);
  } else {
    for (int64_t i = 0; i < w.num_scales(); ++i)
      store_scale(w.format, random_scale(c.format, scales_kind, random), scales, i);
  }
  if (w.zero_bytes() > 0) {
    w.zeros = zeros;
    // Most int8 weights have zeros of 128, and bodies may treat groups of such columns in a way of
    // their own, so two groups of three have them.
    for (int64_t i = 0; i < w.num_scales(); i += kPanelN) {
      const bool usual = c.format == WeightFormat::int8 && random() % 3 != 0;
      for (int64_t column = i; column < i + kPanelN; ++column)
        zeros[column] = usual ? 128 : random_number(c.format, random);
    }
  }
  m.numbers.resize(int64_t{c.n} * c.k);
  for (uint8_t& number : m.numbers) number = random_number(c.format, random);
  pack_numbers(View<const uint8_t>(m.numbers.data(), c.n, c.k), 0, w);
  m.bias.resize(c.n);
  fill<float>(Values::normal, random, m.bias);
  m.column_scales.resize(c.n);
  fill<float>(Values::normal, random, m.column_scales);
  return m;
}

// Rows of int8 as quantizing leaves them: padding is zero, with noise between rows.
struct QuantizedRows {
  std::vector<int8_t> data;
  int64_t stride = 0;
  std::vector<float> scales;
  std::vector<int32_t> sums;
};
inline QuantizedRows quantized_rows(const PackedWeight& w, int rows, std::mt19937& random) {
  QuantizedRows x;
  const int64_t padded = round_up(w.k, kIntegerBlockK);
  x.stride = padded + static_cast<int64_t>(random() % 3) * 16;
  x.data.resize(rows * x.stride + 1);
  for (int8_t& number : x.data)
    number = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
  x.scales.resize(int64_t{rows} * w.groups());
  fill<float>(Values::heavy_tails, random, x.scales);
  x.sums.resize(x.scales.size());
  for (int row = 0; row < rows; ++row) {
    int8_t* numbers = x.data.data() + row * x.stride;
    std::fill(numbers + w.k, numbers + padded, int8_t{0});
    for (int k = 0; k < w.k; ++k) x.sums[row * w.groups() + k / w.group] += numbers[k];
  }
  return x;
}

}  // namespace hocket::cases
