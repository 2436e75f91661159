#include "compute/weights/gguf_k_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "compute/weights/gguf_bytes.h"

namespace hocket {
namespace {

using Id = GgufTypeId;

constexpr int kHalf = 16;

// The scale and the minimum of 32 numbers of Q4_K and Q5_K: six bits each, in 12 bytes.
struct SixBits {
  int scale, min;
};
SixBits six_bits(const std::byte* s, int j) {
  if (j < 4) return {byte_at(s + j) & 63, byte_at(s + j + 4) & 63};
  return {(byte_at(s + j + 4) & 15) | (byte_at(s + j - 4) >> 6) << 4,
          byte_at(s + j + 4) >> 4 | (byte_at(s + j) >> 6) << 4};
}

using Numbers = std::array<uint8_t, kGgufGroup>;

// 32 bytes; a copy, so that loops over them become vector instructions.
Numbers bytes_at(const std::byte* from) {
  Numbers out;
  std::memcpy(out.data(), from, out.size());
  return out;
}

// The numbers of group j of Q4_K or Q5_K. One of two groups has the lower halves of 32 bytes, the
// other the upper ones.
Numbers numbers_with_minimum(GgufTypeId type, const std::byte* block, int j) {
  Numbers out = bytes_at(block + (type == Id::q4_k ? 16 : 48) + j / 2 * kGgufGroup);
  for (uint8_t& number : out) number = number >> 4 * (j % 2) & 15;
  if (type == Id::q4_k) return out;
  const Numbers high = bytes_at(block + 16);
  for (int i = 0; i < kGgufGroup; ++i) out[i] |= static_cast<uint8_t>((high[i] >> j & 1) << 4);
  return out;
}

void read_with_minima(GgufTypeId type, const std::byte* from, float* to) {
  const float d = half_at(from), dmin = half_at(from + 2);
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = six_bits(from + 4, j);
    const float ds = d * static_cast<float>(scale), dm = dmin * static_cast<float>(min);
    const Numbers numbers = numbers_with_minimum(type, from, j);
    for (int i = 0; i < kGgufGroup; ++i)
      to[j * kGgufGroup + i] = ds * static_cast<float>(numbers[i]) - dm;
  }
}
bool read_row_with_minima(const GgufType& type, const std::byte* from, const ScaledRows& out,
                          int64_t row) {
  bool sound = true;
  uint8_t* numbers = out.numbers.row(row);
  for (int64_t g = 0; g < out.scales.cols; ++g, numbers += kGgufGroup) {
    const std::byte* const block = from + g / 8 * type.bytes;
    const int j = static_cast<int>(g % 8);
    const auto [scale, min] = six_bits(block + 4, j);
    out.scales.row(row)[g] = static_cast<float>(scale);
    out.zeros.row(row)[g] = static_cast<uint8_t>(min);
    std::ranges::copy(numbers_with_minimum(type.id, block, j), numbers);
    const BlockFactors by = {half_at(block), half_at(block + 2)};
    out.block_scales.row(row)[g / 8] = by;
    sound &= std::isfinite(by.d) && std::isfinite(by.dmin);
  }
  return sound;
}

// The factor of a block of Q6_K, and the scale of number i.
float q6_k_factor(const std::byte* block) {
  return half_at(block + 208);
}
float q6_k_scale(const std::byte* block, int i) {
  return static_cast<float>(static_cast<int8_t>(byte_at(block + 192 + i / kHalf)));
}
// The numbers of group j of a block of Q6_K, 0..63.
Numbers q6_k_numbers(const std::byte* block, int j) {
  const int part = j / 4, run = j % 4;
  const Numbers low = bytes_at(block + part * 64 + run % 2 * kGgufGroup);
  const Numbers high = bytes_at(block + 128 + part * kGgufGroup);
  Numbers out;
  for (int i = 0; i < kGgufGroup; ++i)
    out[i] = static_cast<uint8_t>((low[i] >> 4 * (run / 2) & 15) | (high[i] >> 2 * run & 3) << 4);
  return out;
}
void read_q6_k(const std::byte* from, float* to) {
  const float d = q6_k_factor(from);
  for (int j = 0; j < kScaleBlock / kGgufGroup; ++j) {
    const Numbers numbers = q6_k_numbers(from, j);
    for (int i = 0; i < kGgufGroup; ++i)
      to[j * kGgufGroup + i] =
          (d * q6_k_scale(from, j * kGgufGroup + i)) * static_cast<float>(numbers[i] - kQ6kOffset);
  }
}
bool read_q6_k_row(const GgufType& type, const std::byte* from, const ScaledRows& out,
                   int64_t row) {
  bool sound = true;
  for (int64_t k = 0; k < out.numbers.cols; k += kScaleBlock, from += type.bytes) {
    for (int i = 0; i < kScaleBlock; i += kGgufGroup)
      std::ranges::copy(q6_k_numbers(from, i / kGgufGroup), out.numbers.row(row) + k + i);
    for (int i = 0; i < kScaleBlock; i += kHalf)
      out.scales.row(row)[(k + i) / kHalf] = q6_k_scale(from, i);
    out.block_scales.row(row)[k / kScaleBlock] = {q6_k_factor(from), 0};
    sound &= std::isfinite(q6_k_factor(from));
  }
  return sound;
}

// Two bits of number i, which are in planes: 128 numbers in 32 bytes.
int two_bits(const std::byte* bytes, int i) {
  return byte_at(bytes + i / 128 * kGgufGroup + i % kGgufGroup) >> 2 * (i % 128 / kGgufGroup) & 3;
}

void read_q2_k(const std::byte* from, float* to) {
  const float d = half_at(from + 80), dmin = half_at(from + 82);
  for (int i = 0; i < kScaleBlock; ++i) {
    const int both = byte_at(from + i / kHalf);
    const float ds = d * static_cast<float>(both & 15), dm = dmin * static_cast<float>(both >> 4);
    to[i] = ds * static_cast<float>(two_bits(from + 16, i)) - dm;
  }
}

}  // namespace

void read_k_block(GgufTypeId type, const std::byte* from, float* to) {
  if (type == Id::q2_k) return read_q2_k(from, to);
  if (type == Id::q6_k) return read_q6_k(from, to);
  HOCKET_CHECK(type == Id::q4_k || type == Id::q5_k);
  read_with_minima(type, from, to);
}

bool read_k_row(const GgufType& type, const std::byte* from, const ScaledRows& out, int64_t row) {
  return type.id == Id::q6_k ? read_q6_k_row(type, from, out, row)
                             : read_row_with_minima(type, from, out, row);
}

GridGroup read_q3_k_group(const std::byte* block, int group) {
  const std::byte* const scales = block + 96;
  GridGroup out{.block_scale = half_at(block + 108), .unit = 1, .scales = {}, .numbers = {}};
  for (int half = 0; half < 2; ++half) {
    const int j = 2 * group + half;
    const int low = j < 8 ? byte_at(scales + j) & 15 : byte_at(scales + j - 8) >> 4;
    const int high = byte_at(scales + 8 + j % 4) >> 2 * (j / 4) & 3;
    out.scales[half] = static_cast<int8_t>((low | high << 4) - 32);
  }
  for (int i = 0; i < kGgufGroup; ++i) {
    const bool whole = (byte_at(block + i) >> group & 1) != 0;
    out.numbers[i] =
        static_cast<int8_t>(two_bits(block + 32, group * kGgufGroup + i) - (whole ? 0 : 4));
  }
  return out;
}

}  // namespace hocket
