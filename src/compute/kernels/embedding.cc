#include "compute/kernels/embedding.h"

#include <algorithm>

namespace hocket {
namespace {

// Unpacks one row of a packed table; its pairs of k are a panel's width apart.
template <class T>
void unpack_row(const PackedWeight& table, int row, float* out) {
  const T* packed = table.panel_as<T>(0);
  const int k_blocks = table.k_blocks();
  for (int k = 0; k < table.k; k += 2) {
    const T* pair = packed + packed_offset(row, k, k_blocks);
    out[k] = to_float(pair[0]);
    if (k + 1 < table.k) out[k + 1] = to_float(pair[1]);
  }
}

// Returns stored number `k` of a row of a format of integers.
int stored_number(const PackedWeight& table, int row, int k) {
  const std::byte* const tile = table.panel(row / kPanelN) +
                                int64_t{k / kIntegerBlockK} * tile_bytes(table.format) +
                                row % kPanelN * 4 + k % 4;
  if (table.format == WeightFormat::q8_0 || table.format == WeightFormat::int8)
    return static_cast<int>(tile[k % kIntegerBlockK / 4 * kNibbleLineBytes]);
  const int bits = num_upper_bits(table.format), quads = lower_lines_per_part(table.format);
  const int quad = k / 4 % kNibbleLines, high = k / kGgufGroup % 2, in_part = quad % quads;
  const std::byte* const part =
      tile + quad / quads * lines_per_part(table.format) * kNibbleLineBytes;
  const int number = static_cast<int>(part[in_part * kNibbleLineBytes]) >> 4 * high & 15;
  if (bits == 0) return number;
  const int upper = static_cast<int>(part[quads * kNibbleLineBytes]) >> bits * (2 * in_part + high);
  return number | (upper & ((1 << bits) - 1)) << 4;
}

// Numbers of one row under one scale: (number - zero) * scale - min, or table[number] * scale.
struct RowScale {
  float scale = 0, min = 0;
  int zero = 0;
  const int8_t* numbers = nullptr;  // the table's
};
RowScale scale_of(const PackedWeight& table, int row, int k) {
  const int group = k / table.group, in_block = group % kScaleBlockGroups, column = row % kPanelN;
  RowScale out;
  if (!has_block_scales(table.format)) {
    const int64_t at = table.scale_index(row, group);
    out.scale = scale_at(table.format, table.scales, at);
    out.zero = table.zeros == nullptr ? 128 : table.zeros[at];
    return out;
  }
  if (has_minima(table.format)) {
    const auto& block = table.block_scales<Q4kScales>(row, group);
    out.scale = f16_to_float(block.d[column]) * block.scales[in_block][column];
    out.min = f16_to_float(block.dmin[column]) * block.mins[in_block][column];
    return out;
  }
  float unit = 1;
  if (has_table(table.format)) {
    const NumberTable& numbers = number_table(table.format);
    unit = numbers.unit, out.numbers = numbers.numbers;
  } else {
    out.zero = kQ6kOffset;
  }
  if (has_scales_of_16(table.format)) {
    const auto& block = table.block_scales<ScalesOf16>(row, group);
    const int64_t sixteen = k % kScaleBlock / 16;
    out.scale = f16_to_float(block.d[column]) * unit * block.scales[sixteen][column];
  } else {
    const auto& block = table.block_scales<TableScales>(row, group);
    out.scale = f16_to_float(block.d[column]) * unit * block.scales[in_block][column];
  }
  return out;
}

void unpack_integers(const PackedWeight& table, int row, float* out) {
  constexpr int kScaleK = 16;  // all formats have one scale for these, or for more
  for (int begin = 0; begin < table.k; begin += kScaleK) {
    const RowScale by = scale_of(table, row, begin);
    for (int k = begin; k < std::min(begin + kScaleK, table.k); ++k) {
      const int stored = stored_number(table, row, k);
      const int number = by.numbers != nullptr ? by.numbers[stored] : stored - by.zero;
      const float value = by.scale * static_cast<float>(number) - by.min;
      out[k] = to_float(from_float<Bf16>(value));
    }
  }
}

// Each number times its scale is a bf16.
void unpack_mxfp4(const PackedWeight& table, int row, float* out) {
  constexpr int kEight = 8, kEightBytes = kEight / 2;
  const std::byte* const eights = table.panel(row / kPanelN) + row % kPanelN * kEightBytes;
  for (int k = 0; k < table.k; ++k) {
    const std::byte* const eight = eights + int64_t{k / kEight} * kPanelN * kEightBytes;
    const int both = static_cast<int>(eight[k % kEight / 2]);
    const int64_t at = table.scale_index(row, k / table.group);
    out[k] = e2m1_to_float(both >> 4 * (k % 2) & 15) * scale_at(table.format, table.scales, at);
  }
}

}  // namespace

void embed(Backend& backend, std::span<const TokenId> ids, const PackedWeight& table,
           View<float> out) {
  HOCKET_CHECK(out.rows == std::ssize(ids));
  HOCKET_CHECK(out.cols == table.k);
  for (TokenId id : ids) HOCKET_CHECK((value(id) >= 0 && value(id) < table.n));
  backend.workers().run(static_cast<int>(ids.size()), [&](int row, int) {
    if (is_integer(table.format)) return unpack_integers(table, value(ids[row]), out.row(row));
    if (table.format == WeightFormat::mxfp4)
      return unpack_mxfp4(table, value(ids[row]), out.row(row));
    with_dtype(activation_dtype(table.format),
               [&](auto t) { unpack_row<decltype(t)>(table, value(ids[row]), out.row(row)); });
  });
}

}  // namespace hocket
