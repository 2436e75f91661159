#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "compute/kernels/arithmetic/packed_weight.h"

namespace hocket {
namespace {

// Packs one column of one block: 16 pairs, a panel's width apart.
template <class T>
void pack_column(const T* from, int count, T* to) {
  T padded[kBlockK] = {};
  if (count < kBlockK) {
    std::memcpy(padded, from, count * sizeof(T));
    from = padded;
  }
  for (int pair = 0; pair < kBlockK / 2; ++pair)
    std::memcpy(to + pair * 2 * kPanelN, from + 2 * pair, 2 * sizeof(T));
}

}  // namespace

template <class T>
void pack_rows(View<const T> rows, int64_t row_begin, T* packed) {
  const int64_t k_blocks = round_up(rows.cols, kBlockK) / kBlockK;
  // The rows of a panel are packed block by block, so that a tile is filled while it is in cache.
  for (int64_t begin = 0; begin < rows.rows;) {
    const int64_t panel_end = round_up(row_begin + begin + 1, kPanelN) - row_begin;
    const int64_t end = panel_end < rows.rows ? panel_end : rows.rows;
    for (int64_t block = 0; block < k_blocks; ++block) {
      const int64_t k = block * kBlockK;
      const int count = static_cast<int>(rows.cols - k < kBlockK ? rows.cols - k : kBlockK);
      for (int64_t row = begin; row < end; ++row)
        pack_column(rows.row(row) + k, count, packed + packed_offset(row_begin + row, k, k_blocks));
    }
    begin = end;
  }
}

template void pack_rows<Bf16>(View<const Bf16>, int64_t, Bf16*);
template void pack_rows<float>(View<const float>, int64_t, float*);
template void pack_rows<uint8_t>(View<const uint8_t>, int64_t, uint8_t*);

namespace {

constexpr int kQuad = 4;  // numbers of a column that are adjacent
constexpr int kQuadStep = kQuad * kPanelN;

// Returns the numbers of one block of a row, padded with 0.
const uint8_t* numbers_of(const uint8_t* row, int64_t count, uint8_t (&padded)[kIntegerBlockK]) {
  if (count >= kIntegerBlockK) return row;
  std::memset(padded, 0, sizeof(padded));
  std::memcpy(padded, row, count);
  return padded;
}

uint32_t quad_at(const uint8_t* numbers) {
  uint32_t quad;
  std::memcpy(&quad, numbers, kQuad);
  return quad;
}

// Calls pack_column(numbers, to) for every block of every row; `to` is the start of the column in
// its block.
template <class PackColumn>
void pack_integer_rows(View<const uint8_t> rows, int64_t row_begin, int64_t block_bytes,
                       uint8_t* packed, PackColumn pack_column) {
  const int64_t k_blocks = round_up(rows.cols, kIntegerBlockK) / kIntegerBlockK;
  uint8_t padded[kIntegerBlockK];
  for (int64_t r = 0; r < rows.rows; ++r) {
    const int64_t n = row_begin + r;
    uint8_t* const column = packed + n / kPanelN * k_blocks * block_bytes + n % kPanelN * kQuad;
    for (int64_t block = 0; block < k_blocks; ++block) {
      const int64_t k = block * kIntegerBlockK;
      pack_column(numbers_of(rows.row(r) + k, rows.cols - k, padded), column + block * block_bytes);
    }
  }
}

}  // namespace

void pack_int8_rows(View<const uint8_t> rows, int64_t row_begin, uint8_t* packed) {
  pack_integer_rows(rows, row_begin, tile_bytes(WeightFormat::int8), packed,
                    [](const uint8_t* numbers, uint8_t* to) {
                      for (int k = 0; k < kIntegerBlockK; k += kQuad, to += kQuadStep)
                        std::memcpy(to, numbers + k, kQuad);
                    });
}

void pack_int4_rows(View<const uint8_t> rows, int64_t row_begin, uint8_t* packed) {
  constexpr int kHalf = kIntegerBlockK / 2;
  pack_integer_rows(rows, row_begin, tile_bytes(WeightFormat::int4), packed,
                    [](const uint8_t* numbers, uint8_t* to) {
                      for (int k = 0; k < kHalf; k += kQuad, to += kQuadStep) {
                        const uint32_t quad = quad_at(numbers + k) | quad_at(numbers + kHalf + k)
                                                                         << 4;
                        std::memcpy(to, &quad, kQuad);
                      }
                    });
}

namespace {

// Packs the lower four bits of each number as int4, and the upper kBits bits into lines of their
// own, one behind the lines of 4 / kBits quads.
template <int kBits>
void pack_k_rows(View<const uint8_t> rows, int64_t row_begin, int64_t block_bytes,
                 uint8_t* packed) {
  constexpr int kHalf = kIntegerBlockK / 2, kPartQuads = 4 / kBits;
  constexpr uint32_t kLow = 0x0f0f0f0f, kHigh = 0x01010101 * ((1 << kBits) - 1);
  pack_integer_rows(rows, row_begin, block_bytes, packed, [](const uint8_t* numbers, uint8_t* to) {
    for (int k = 0; k < kHalf; to += kQuadStep) {
      uint32_t high = 0;
      for (int i = 0; i < kPartQuads; ++i, k += kQuad, to += kQuadStep) {
        const uint32_t first = quad_at(numbers + k), second = quad_at(numbers + kHalf + k);
        const uint32_t low = (first & kLow) | (second & kLow) << 4;
        std::memcpy(to, &low, kQuad);
        high |= ((first >> 4 & kHigh) | (second >> 4 & kHigh) << kBits) << 2 * kBits * i;
      }
      std::memcpy(to, &high, kQuad);
    }
  });
}

}  // namespace

void pack_q5_k_rows(View<const uint8_t> rows, int64_t row_begin, uint8_t* packed) {
  pack_k_rows<1>(rows, row_begin, tile_bytes(WeightFormat::q5_k), packed);
}

void pack_q6_k_rows(View<const uint8_t> rows, int64_t row_begin, uint8_t* packed) {
  pack_k_rows<2>(rows, row_begin, tile_bytes(WeightFormat::q6_k), packed);
}

void pack_fp4_rows(View<const uint8_t> rows, int64_t row_begin, uint8_t* packed) {
  constexpr int kEight = 8, kEights = kBlockK / kEight;
  const int64_t k_blocks = round_up(rows.cols, kBlockK) / kBlockK;
  for (int64_t r = 0; r < rows.rows; ++r) {
    const int64_t n = row_begin + r;
    uint8_t* const column = packed + n / kPanelN * k_blocks * tile_bytes(WeightFormat::mxfp4) +
                            n % kPanelN * int64_t{sizeof(uint32_t)};
    for (int64_t eight = 0; eight < k_blocks * kEights; ++eight) {
      uint32_t bits = 0;
      const int64_t begin = eight * kEight;
      for (int64_t k = begin; k < std::min(begin + kEight, rows.cols); ++k)
        bits |= uint32_t{rows.row(r)[k]} << 4 * (k - begin);
      std::memcpy(column + eight * kPanelN * int64_t{sizeof bits}, &bits, sizeof bits);
    }
  }
}

const NumberTable& number_table(WeightFormat format) {
  static constexpr NumberTable kTables[kNumTables] = {
      {{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}, 1},  // iq4
      {{4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62}, 0.25f},  // iq3_xxs
      {{1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}, 1},              // iq3_s
      {{8, 25, 43, -8, -25, -43}, 0.125f},                                              // iq2
      {{-9, -7, -1, 1, 7, 9}, 0.125f},                                                  // iq1
      {{-1, 0, 1, 2}, 1},                                                               // tq
      {{-4, -3, -2, -1, 0, 1, 2, 3}, 1},                                                // q3_k
      {{8, 25, 43, -8, -25, -43}, 0.125f},                                              // iq2_s
      {{-9, -7, -1, 1, 7, 9}, 0.125f},                                                  // iq1_m
  };
  HOCKET_CHECK(has_table(format));
  return kTables[table_index(format)];
}

float scale_at(WeightFormat format, const std::byte* scales, int64_t at) {
  scales += at * scale_size(format);
  if (format == WeightFormat::nvfp4) return fp8_to_float(static_cast<uint8_t>(*scales));
  if (is_mx(format)) return e8m0_to_float(static_cast<uint8_t>(*scales));
  if (scale_size(format) == 2) {
    uint16_t bits;
    std::memcpy(&bits, scales, sizeof bits);
    return f16_to_float(bits);
  }
  float scale;
  std::memcpy(&scale, scales, sizeof scale);
  return scale;
}

void store_scale(WeightFormat format, float scale, std::byte* scales, int64_t at) {
  scales += at * scale_size(format);
  if (format == WeightFormat::nvfp4) {
    *scales = std::byte{float_to_fp8(scale)};
  } else if (is_mx(format)) {
    *scales = static_cast<std::byte>(std::bit_cast<uint32_t>(scale) >> 23);
  } else if (scale_size(format) == 2) {
    const uint16_t bits = float_to_f16(scale);
    std::memcpy(scales, &bits, sizeof bits);
  } else {
    std::memcpy(scales, &scale, sizeof scale);
  }
}

float fp8_to_float(uint8_t bits) {
  const uint32_t sign = uint32_t{bits & 0x80u} << 24, magnitude = bits & 0x7fu;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  constexpr uint32_t kExponentShift = 127 - 7;
  const float value = magnitude < 8
                          ? static_cast<float>(magnitude) * 0x1p-9f
                          : std::bit_cast<float>((magnitude << 20) + (kExponentShift << 23));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

uint8_t float_to_fp8(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  const float magnitude = std::abs(x);
  uint32_t code;
  if (magnitude < 0x1p-6f) {  // subnormal: eighths of 2^-6
    code = static_cast<uint32_t>(std::nearbyint(magnitude * 0x1p9f));
  } else {
    const uint32_t m = bits & 0x7fffffffu;
    const uint32_t rounded = (m + 0x7ffffu + (m >> 20 & 1u)) >> 20;  // 3 bits of mantissa stay
    code = std::min(rounded - ((127u - 7u) << 3), 0x7eu);
  }
  return static_cast<uint8_t>(sign | code);
}

float e2m1_to_float(int bits) {
  constexpr float kValues[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const float value = kValues[bits & 7];
  return (bits & 8) != 0 ? -value : value;
}

float e8m0_to_float(uint8_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 23);
}

}  // namespace hocket
