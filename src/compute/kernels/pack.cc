#include <bit>
#include <cstring>

#include "compute/kernels/packed_weight.h"

namespace hocket {
namespace {

// One column of one block: 16 pairs, a panel's width apart.
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
  // A panel's rows block by block, so that a tile is filled while it lies in the cache.
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

// Byte of number k of a column inside an int8 block: quad k/4, column, k%4.
constexpr int64_t quad_offset(int64_t column, int64_t k) {
  return k / 4 * (4 * kPanelN) + column * 4 + k % 4;
}

}  // namespace

void pack_int8_rows(View<const uint8_t> rows, int64_t row_begin, uint8_t* packed) {
  const int64_t k_blocks = round_up(rows.cols, kIntegerBlockK) / kIntegerBlockK;
  for (int64_t r = 0; r < rows.rows; ++r) {
    const int64_t n = row_begin + r;
    uint8_t* const panel = packed + n / kPanelN * k_blocks * tile_bytes(WeightFormat::int8);
    for (int64_t k = 0; k < k_blocks * kIntegerBlockK; ++k)
      panel[k / kIntegerBlockK * tile_bytes(WeightFormat::int8) +
            quad_offset(n % kPanelN, k % kIntegerBlockK)] = k < rows.cols ? rows.row(r)[k] : 0;
  }
}

void pack_int4_rows(View<const uint8_t> rows, int64_t row_begin, uint8_t* packed) {
  const int64_t k_blocks = round_up(rows.cols, kIntegerBlockK) / kIntegerBlockK;
  const auto number = [&](int64_t r, int64_t k) -> uint8_t {
    return k < rows.cols ? rows.row(r)[k] : 0;
  };
  for (int64_t r = 0; r < rows.rows; ++r) {
    const int64_t n = row_begin + r;
    uint8_t* const panel = packed + n / kPanelN * k_blocks * tile_bytes(WeightFormat::int4);
    for (int64_t block = 0; block < k_blocks; ++block)
      for (int64_t k = 0; k < kIntegerBlockK / 2; ++k) {
        const int64_t at = block * kIntegerBlockK + k;
        panel[block * tile_bytes(WeightFormat::int4) + quad_offset(n % kPanelN, k)] =
            static_cast<uint8_t>(number(r, at) | number(r, at + kIntegerBlockK / 2) << 4);
      }
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

}  // namespace hocket
