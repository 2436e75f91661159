#include "compute/weights/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "base/check.h"
#include "compute/weights/gguf_bytes.h"
#include "compute/weights/gguf_grids.h"
#include "compute/weights/gguf_k_blocks.h"
#include "compute/weights/weight_source.h"

namespace hocket {
namespace {

using Id = GgufTypeId;

constexpr int kLong = 256;  // numbers of the longer blocks
constexpr int kShort = 32;

using Numbers = std::array<uint8_t, kShort>;

// 32 numbers that are stored as the two halves of 16 bytes.
Numbers nibbles(const std::byte* from) {
  uint8_t bytes[kShort / 2];  // a copy, so that the loop becomes vector instructions
  std::memcpy(bytes, from, sizeof bytes);
  Numbers out;
  for (int i = 0; i < kShort / 2; ++i) {
    out[i] = bytes[i] & 15;
    out[i + kShort / 2] = bytes[i] >> 4;
  }
  return out;
}

// The number for which four bits of IQ4_NL and IQ4_XS stand.
int8_t uneven(int bits) {
  return number_table(WeightFormat::iq4).numbers[bits];
}

// 32 numbers with their fifth bits in four further bytes.
Numbers five_bits(const std::byte* high, const std::byte* low) {
  uint32_t bits;
  std::memcpy(&bits, high, 4);
  Numbers out = nibbles(low);
  for (int i = 0; i < kShort; ++i) out[i] |= static_cast<uint8_t>((bits >> i & 1) << 4);
  return out;
}

// 32 numbers under one scale: (number - zero) * scale.
struct Group {
  float scale = 0;
  Numbers numbers;
};

// Reads group j of IQ4_XS.
GridGroup read_iq4_xs(const std::byte* from, int j) {
  uint16_t high;
  std::memcpy(&high, from + 2, 2);
  const int low = byte_at(from + 4 + j / 2) >> 4 * (j % 2) & 15;
  GridGroup out{.block_scale = half_at(from), .unit = 1, .scales = {}, .numbers = {}};
  out.scales.fill(static_cast<int8_t>((low | (high >> 2 * j & 3) << 4) - 32));
  const Numbers bits = nibbles(from + 8 + j * 16);
  for (int i = 0; i < kShort; ++i) out.numbers[i] = uneven(bits[i]);
  return out;
}

GridGroup group_of_integers_at(const GgufType& type, const std::byte* from, int64_t group) {
  from += group / 8 * type.bytes;
  const int j = static_cast<int>(group % 8);
  if (type.id == Id::q3_k) return read_q3_k_group(from, j);
  return type.id == Id::iq4_xs ? read_iq4_xs(from, j) : read_grid_group(type.id, from, j);
}

// Returns, by number, its index in the table. Every number of a type is in its table.
std::array<uint8_t, 256> indices_in(const NumberTable& table) {
  std::array<uint8_t, 256> indices{};
  for (int i = 15; i >= 0; --i)
    indices[static_cast<uint8_t>(table.numbers[i])] = static_cast<uint8_t>(i);
  return indices;
}
const std::array<uint8_t, 256>& indices_of(WeightFormat format) {
  static const auto all = [] {
    std::array<std::array<uint8_t, 256>, kNumTables> out;
    for (int i = 0; i < kNumTables; ++i) out[i] = indices_in(number_table(table_format(i)));
    return out;
  }();
  return all[table_index(format)];
}

bool read_table_row(const GgufType& type, const std::byte* from, const ScaledRows& out,
                    int64_t row) {
  const std::array<uint8_t, 256>& indices = indices_of(out.format.format);
  const int halves = has_scales_of_16(out.format.format) ? 2 : 1;
  bool sound = true;
  uint8_t* numbers = out.numbers.row(row);
  float* scales = out.scales.row(row);
  for (int64_t g = 0; g < out.numbers.cols / kShort; ++g, numbers += kShort) {
    const GridGroup group = group_of_integers_at(type, from, g);
    for (int half = 0; half < halves; ++half) *scales++ = static_cast<float>(group.scales[half]);
    out.block_scales.row(row)[g / 8] = {group.block_scale, 0};
    for (int i = 0; i < kShort; ++i) numbers[i] = indices[static_cast<uint8_t>(group.numbers[i])];
    sound &= std::isfinite(group.block_scale);
  }
  return sound;
}

// Reads group `group` of a row that begins at `from`.
Group group_at(const GgufType& type, const std::byte* from, int64_t group) {
  from += group * type.bytes;
  Group out;
  if (type.id == Id::mxfp4) {
    out.scale = e8m0_to_float(static_cast<uint8_t>(byte_at(from)));
    out.numbers = nibbles(from + 1);
    return out;
  }
  out.scale = half_at(from);
  from += 2;
  switch (type.id) {
    case Id::q8_0:  // signed bytes plus 128
      for (int i = 0; i < kShort; ++i)
        out.numbers[i] = static_cast<uint8_t>(byte_at(from + i) ^ kInt8Zero);
      break;
    case Id::q5_0:
      out.numbers = five_bits(from, from + 4);
      for (uint8_t& number : out.numbers) number += kInt8Zero - 16;
      break;
    case Id::iq4_nl:
      out.numbers = nibbles(from);
      for (uint8_t& number : out.numbers) number = static_cast<uint8_t>(uneven(number) + kInt8Zero);
      break;
    default:
      HOCKET_CHECK(type.id == Id::q4_0);
      out.numbers = nibbles(from);
  }
  return out;
}

void read_with_minimum(GgufTypeId type, const std::byte* from, float* to) {
  const float d = half_at(from), m = half_at(from + 2);
  const Numbers numbers = type == Id::q4_1 ? nibbles(from + 4) : five_bits(from + 4, from + 8);
  for (int i = 0; i < kShort; ++i) to[i] = d * static_cast<float>(numbers[i]) + m;
}

void read_integers(const GgufType& type, const std::byte* from, float* to) {
  for (int i = 0; i < kLong; i += kShort) {
    const GridGroup group = group_of_integers_at(type, from, i / kShort);
    for (int j = 0; j < kShort; ++j)
      to[i + j] = static_cast<float>(group.numbers[j]) * group.scale(j / 16);
  }
}

void read_block(const GgufType& type, const std::byte* from, float* to) {
  switch (type.id) {
    case Id::q4_1:
    case Id::q5_1:
      return read_with_minimum(type.id, from, to);
    case Id::q2_k:
    case Id::q4_k:
    case Id::q5_k:
    case Id::q6_k:
      return read_k_block(type.id, from, to);
    default:
      return read_integers(type, from, to);
  }
}

// The zero that the numbers of a group have in common.
int zero_of(GgufTypeId type) {
  return type == Id::q4_0 ? 8 : kInt8Zero;
}

}  // namespace

MatrixFormat format_of_blocks(GgufTypeId type) {
  switch (type) {
    case Id::f32:
    case Id::f16:
    case Id::bf16:
      return {};
    case Id::q4_0:
      return {WeightFormat::int4, kShort};
    case Id::mxfp4:
      return {WeightFormat::mxfp4, kMxGroup};
    case Id::q3_k:
      return {WeightFormat::q3_k, kGgufGroup};
    case Id::q4_k:
      return {WeightFormat::q4_k, kGgufGroup};
    case Id::q5_k:
      return {WeightFormat::q5_k, kGgufGroup};
    case Id::q6_k:
      return {WeightFormat::q6_k, kGgufGroup};
    case Id::iq4_xs:
      return {WeightFormat::iq4, kGgufGroup};
    case Id::iq3_xxs:
      return {WeightFormat::iq3_xxs, kGgufGroup};
    case Id::iq3_s:
      return {WeightFormat::iq3_s, kGgufGroup};
    case Id::iq2_xxs:
      return {WeightFormat::iq2, kGgufGroup};
    case Id::iq2_xs:
    case Id::iq2_s:
      return {WeightFormat::iq2_s, kGgufGroup};
    case Id::iq1_s:
      return {WeightFormat::iq1, kGgufGroup};
    case Id::iq1_m:
      return {WeightFormat::iq1_m, kGgufGroup};
    case Id::tq1_0:
    case Id::tq2_0:
      return {WeightFormat::tq, kGgufGroup};
    default:
      return kQ8Format;
  }
}

bool keeps_values(GgufTypeId type) {
  return type != Id::q4_1 && type != Id::q5_1 && type != Id::q2_k;
}

WeightFormat most_blocks(const GgufFile& file) {
  std::map<WeightFormat, int64_t> bytes;
  for (const GgufFile::Part& part : file.parts())
    for (const auto& [name, tensor] : part.header.tensors)
      if (tensor.shape.size() > 1)
        bytes[format_of_blocks(tensor.type->id).format] += tensor.end - tensor.begin;
  const auto most =
      std::ranges::max_element(bytes, {}, [](const auto& entry) { return entry.second; });
  return most == bytes.end() ? WeightFormat::bf16 : most->first;
}

void read_blocks(const GgufType& type, const std::byte* from, int64_t count, float* to) {
  if (type.block == 1) {
    const StoredType plain = type.id == Id::f32   ? StoredType::f32
                             : type.id == Id::f16 ? StoredType::f16
                                                  : StoredType::bf16;
    return convert_stored(plain, from, count, to);
  }
  if (!keeps_values(type.id) || has_block_scales(format_of_blocks(type.id).format)) {
    for (int64_t block = 0; block < count / type.block; ++block)
      read_block(type, from + block * type.bytes, to + block * type.block);
    return;
  }
  for (int64_t g = 0; g < count / kShort; ++g) {
    const Group group = group_at(type, from, g);
    for (int i = 0; i < kShort; ++i)
      to[g * kShort + i] =
          type.id == Id::mxfp4
              ? e2m1_to_float(group.numbers[i]) * group.scale
              : static_cast<float>(group.numbers[i] - zero_of(type.id)) * group.scale;
  }
}

bool read_scaled_blocks(const GgufType& type, const std::byte* from, const ScaledRows& out,
                        int64_t row) {
  HOCKET_CHECK(out.format == format_of_blocks(type.id) && keeps_values(type.id));
  if (is_k_format(out.format.format)) return read_k_row(type, from, out, row);
  if (has_table(out.format.format)) return read_table_row(type, from, out, row);
  bool sound = true;
  for (int64_t g = 0; g < out.scales.cols; ++g) {
    const Group group = group_at(type, from, g);
    std::memcpy(out.numbers.row(row) + g * kShort, group.numbers.data(), kShort);
    out.scales.row(row)[g] = group.scale;
    if (type.id != Id::mxfp4) {
      out.zeros.row(row)[g] = static_cast<uint8_t>(zero_of(type.id));
      sound &= std::isfinite(group.scale);
      continue;
    }
    const auto scale = static_cast<uint8_t>(byte_at(from + g * type.bytes));
    const bool fits = fits_bf16(WeightFormat::mxfp4, scale);
    if (!fits) out.scales.row(row)[g] = 0;
    sound &= fits || (scale != 0xff && all_zero(group.numbers.data(), kShort, 7));
  }
  return sound;
}

}  // namespace hocket
