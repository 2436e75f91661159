// Weights in the one layout that AMX tiles and the vector kernels both read:
//
//   bf16, f32, fp8   [n / 16 panels][k / 32 blocks][16 pairs][16 columns][2]
//   int8, q8_0       [n / 16 panels][k / 64 blocks][16 quads][16 columns][4]
//   int4             [n / 16 panels][k / 64 blocks][8 quads][16 columns][4], two numbers per byte:
//                    quad q in the low half, quad q + 8 in the high half
//   q4_k, formats with a table   as int4
//   q5_k             [n / 16 panels][k / 64 blocks][2 parts]: the lower four bits of four quads as
//                    int4, then [16 columns][4] bytes of their fifth bits: bit 2i is that of the
//                    number in the low half of quad i, bit 2i + 1 that of the number in the high
//   q6_k             [n / 16 panels][k / 64 blocks][4 parts]: the same for two quads and the upper
//                    two bits, at bits 4i and 4i + 2
//   mxfp8            as fp8
//   mxfp4, nvfp4     [n / 16 panels][k / 32 blocks][4 eights][16 columns][8], two numbers per byte:
//                    ascending k from the lowest bits on
//
// A pair, a quad and an eight are 2, 4 and 8 neighbouring k. In the first line, element (n, k) is
// at panel n/16, block k/32, pair (k%32)/2, column n%16, k%2. n is padded to whole panels and k to
// whole blocks, with zeros; scales of padding columns are zero too. Pages of the KV cache use the
// same tiles (kv_layout.h).
//
// A stored number means:
//   fp8   e4m3, times the scale of its column and group of 128 k
//   int8  (number - zero) times the scale of its column and group; numbers 0..255
//   int4  the same; numbers 0..15
//   q8_0  (number - 128) times the scale of its column and group of 32 k
//   q4_k  number times the scale of its column and group of 32 k, minus the minimum of these;
//         numbers 0..15, scales and minima as Q4kScales hold them
//   q5_k  the same; numbers 0..31
//   iq4 to tq   entry `number` of the format's table, times the scale of its column and group of
//         32 k, which TableScales hold
//   q3_k, iq2_s, iq1_m   the same with a scale for each 16 k of a group, which ScalesOf16 hold
//   q6_k  (number - 32) times such a scale; numbers 0..63
//   mxfp4   e2m1, times the scale of its column and group of 32 k, which is e8m0: 2^(byte - 127)
//   mxfp8   e4m3, times such a scale
//   nvfp4   e2m1, times the scale of its column and group of 16 k, which is e4m3; the finished
//           product is multiplied by the column's scale
// Number times group scale is a bf16, exactly; it is zero or not below 2^-126.
//
// Scales are bytes for the last three, fp16 for int4 and q8_0, else fp32. One Q4kScales,
// TableScales or ScalesOf16 has those of a panel and eight groups.
#pragma once

#include <cstdint>

#include "compute/tensor/view.h"

namespace hocket {

inline constexpr int kPanelN = 16;
inline constexpr int kTileElements = kPanelN * kBlockK;
inline constexpr int kIntegerBlockK = 64;
inline constexpr int kFp8Group = 128;
inline constexpr int kMxGroup = 32, kNvfp4Group = 16;
// Formats of GGUF: k under one scale, and k whose scales have a float16 in common (not in q8_0).
inline constexpr int kGgufGroup = 32, kScaleBlock = 256;
inline constexpr int kScaleBlockGroups = kScaleBlock / kGgufGroup;
// Beyond this k the int32 sums of int8 and int4 weights may overflow.
inline constexpr int kMaxIntegerDepth = 65536;

// The lines [16 columns][4] of a block of int4 and of formats with block scales. Upper bits that do
// not fit into four have lines of their own, each behind the lines of one part.
inline constexpr int kNibbleLines = 8, kNibbleLineBytes = 4 * kPanelN;
// Returns how many upper bits of each number have lines of their own.
constexpr int num_upper_bits(WeightFormat f) {
  return f == WeightFormat::q5_k ? 1 : f == WeightFormat::q6_k ? 2 : 0;
}
// Return the lines of lower bits in a part, and all its lines.
constexpr int lower_lines_per_part(WeightFormat f) {
  return num_upper_bits(f) == 0 ? kNibbleLines : 4 / num_upper_bits(f);
}
constexpr int lines_per_part(WeightFormat f) {
  return lower_lines_per_part(f) + (num_upper_bits(f) > 0 ? 1 : 0);
}
constexpr int block_k(WeightFormat f) {
  return is_integer(f) ? kIntegerBlockK : kBlockK;
}
// Returns the bytes of one block of one panel.
constexpr int tile_bytes(WeightFormat f) {
  switch (f) {
    case WeightFormat::f32:
      return 2048;
    case WeightFormat::bf16:
    case WeightFormat::int8:
    case WeightFormat::q8_0:
      return 1024;
    case WeightFormat::fp8:
    case WeightFormat::int4:
    case WeightFormat::mxfp8:
      return 512;
    case WeightFormat::mxfp4:
    case WeightFormat::nvfp4:
      return 256;
    default:
      if (!has_block_scales(f)) return 0;
      return kNibbleLines / lower_lines_per_part(f) * lines_per_part(f) * kNibbleLineBytes;
  }
}
// Bytes of the scale of one column and group, in formats without block scales.
constexpr int scale_size(WeightFormat f) {
  return is_mx(f) ? 1 : f == WeightFormat::int4 || f == WeightFormat::q8_0 ? 2 : 4;
}

// The scales and minima of one panel and eight groups of q4_k and q5_k: d times a scale and dmin
// times a minimum, both float16 times six bits and exact.
struct Q4kScales {
  uint16_t d[kPanelN], dmin[kPanelN];
  uint8_t scales[kScaleBlockGroups][kPanelN], mins[kScaleBlockGroups][kPanelN];
};
static_assert(sizeof(Q4kScales) == 320);
// The scales of one panel and eight groups of a format with a table: d, a float16, times the
// table's unit times an integer, exactly.
struct TableScales {
  uint16_t d[kPanelN];
  int8_t scales[kScaleBlockGroups][kPanelN];
};
static_assert(sizeof(TableScales) == 160);
// The scales of one panel and eight groups, two a group: d, a float16, times the table's unit,
// times an integer.
struct ScalesOf16 {
  uint16_t d[kPanelN];
  int8_t scales[2 * kScaleBlockGroups][kPanelN];
};
static_assert(sizeof(ScalesOf16) == 288);
inline constexpr int kQ6kOffset = 32;  // the number of q6_k that means 0

// The numbers of a format with a table: of IQ4_XS, IQ3_XXS, IQ3_S, IQ2_XXS, IQ1_S, TQ1_0 and TQ2_0;
// of Q3_K, IQ2_XS and IQ2_S, IQ1_M.
struct NumberTable {
  alignas(16) int8_t numbers[16];
  float unit;  // a power of two that multiplies all scales
};
constexpr int kNumTables =
    static_cast<int>(WeightFormat::iq1_m) - static_cast<int>(WeightFormat::iq4) + 1;
constexpr WeightFormat table_format(int index) {
  return static_cast<WeightFormat>(static_cast<int>(WeightFormat::iq4) + index);
}
constexpr int table_index(WeightFormat f) {
  return static_cast<int>(f) - static_cast<int>(WeightFormat::iq4);
}
// Precondition: has_table(format).
const NumberTable& number_table(WeightFormat format);
// Returns the bytes of the scales of one panel and eight groups. Precondition: has_block_scales(f).
constexpr int64_t block_scales_size(WeightFormat f) {
  if (has_scales_of_16(f)) return sizeof(ScalesOf16);
  return has_minima(f) ? sizeof(Q4kScales) : sizeof(TableScales);
}

// A matrix that the model's weight memory owns.
struct PackedWeight {
  const void* data = nullptr;
  WeightFormat format = WeightFormat::bf16;
  int n = 0, k = 0;  // logical: y[n] = sum over k
  // Values of k under one scale: 128 in fp8, 32 in mxfp4, mxfp8, q8_0 and with block scales, 16 in
  // nvfp4; in int8 and int4 32, 64, 128 or all (a multiple of 64); 0: no scales.
  int group = 0;
  const std::byte* scales = nullptr;  // [panels][groups][16 columns]; or [panels][ceil(groups/8)]
  const uint8_t* zeros = nullptr;     // int8, int4: [panels][groups][16 columns]
  const float* column_scales = nullptr;  // nvfp4: [n], each multiplies its finished products
  const float* bias = nullptr;           // [n], added to every product; or null

  int panels() const { return static_cast<int>(round_up(n, kPanelN) / kPanelN); }
  int k_blocks() const { return static_cast<int>(round_up(k, block_k(format)) / block_k(format)); }
  // Groups cover k, and whole blocks of 32 if they are smaller.
  int groups() const {
    return group == 0 ? 0 : static_cast<int>((round_up(k, kBlockK) + group - 1) / group);
  }
  int64_t panel_bytes() const { return int64_t{k_blocks()} * tile_bytes(format); }
  // Bytes of the numbers, the scales and the zeros, each padded to 64.
  int64_t data_bytes() const { return panels() * panel_bytes(); }
  int64_t num_scales() const { return int64_t{panels()} * groups() * kPanelN; }
  // Bytes of the scales of one panel.
  int64_t panel_scale_bytes() const {
    if (has_block_scales(format))
      return round_up(groups(), kScaleBlockGroups) / kScaleBlockGroups * block_scales_size(format);
    return int64_t{groups()} * kPanelN * scale_size(format);
  }
  int64_t scale_bytes() const { return round_up(panels() * panel_scale_bytes(), 64); }
  int64_t zero_bytes() const {
    const bool has_zeros = format == WeightFormat::int8 || format == WeightFormat::int4;
    return has_zeros ? round_up(num_scales(), 64) : 0;
  }
  int64_t column_scale_bytes() const {
    return format == WeightFormat::nvfp4 ? round_up(n, kPanelN) * int64_t{sizeof(float)} : 0;
  }
  int64_t bytes() const {
    return data_bytes() + scale_bytes() + zero_bytes() + column_scale_bytes();
  }

  // Returns the scales of a column's panel and group g. S: Q4kScales, TableScales or ScalesOf16, as
  // the format has them.
  template <class S>
  const S& block_scales(int64_t column, int64_t g) const {
    HOCKET_CHECK(has_block_scales(format));
    HOCKET_CHECK(sizeof(S) == block_scales_size(format));
    const std::byte* const of_panel = scales + column / kPanelN * panel_scale_bytes();
    return reinterpret_cast<const S*>(of_panel)[g / kScaleBlockGroups];
  }
  // Returns the index of a column's scale in group g.
  int64_t scale_index(int64_t column, int64_t g) const {
    return (column / kPanelN * groups() + g) * kPanelN + column % kPanelN;
  }
  const std::byte* panel(int p) const {
    return static_cast<const std::byte*>(data) + p * panel_bytes();
  }
  template <class T>  // T must match the format: Bf16 or float
  const T* panel_as(int p) const {
    HOCKET_CHECK(format == (sizeof(T) == 2 ? WeightFormat::bf16 : WeightFormat::f32));
    return reinterpret_cast<const T*>(panel(p));
  }
};

// Returns the offset of element (n, k) in a packed matrix of k_blocks blocks of 32.
constexpr int64_t packed_offset(int64_t n, int64_t k, int64_t k_blocks) {
  return (n / kPanelN * k_blocks + k / kBlockK) * kTileElements + k % kBlockK / 2 * 32 +
         n % kPanelN * 2 + k % 2;
}

// Packs rows [row_begin, row_begin + rows.rows) of a matrix of k = rows.cols columns, which begins
// at `packed`. Columns that pad k to whole blocks are written as zero; rows that pad n to whole
// panels are not written. T: Bf16, float, or uint8_t for fp8 and mxfp8.
// Thread: any, if no two pack rows of one panel.
template <class T>
void pack_rows(View<const T> rows, int64_t row_begin, T* packed);
// Pack like pack_rows, from `rows` with one number per byte, into whole blocks of the format. The
// numbers that pad k are 0; the activations there are 0 too, so any number would give the same
// sums.
void pack_int8_rows(View<const uint8_t> rows, int64_t row_begin, uint8_t* packed);
void pack_int4_rows(View<const uint8_t> rows, int64_t row_begin, uint8_t* packed);
void pack_q5_k_rows(View<const uint8_t> rows, int64_t row_begin, uint8_t* packed);
void pack_q6_k_rows(View<const uint8_t> rows, int64_t row_begin, uint8_t* packed);
void pack_fp4_rows(View<const uint8_t> rows, int64_t row_begin, uint8_t* packed);  // mxfp4, nvfp4

// Read and write scale `at` of a matrix without block scales. A stored scale is rounded to the
// nearest of its format; those of mxfp4, mxfp8 and nvfp4 must be numbers of it (0 is stored as the
// byte 0 of e8m0).
float scale_at(WeightFormat format, const std::byte* scales, int64_t at);
void store_scale(WeightFormat format, float scale, std::byte* scales, int64_t at);

// Returns an e4m3 number as fp32, exactly; 0x7f and 0xff are NaN.
float fp8_to_float(uint8_t bits);
// Returns the nearest e4m3, ties to even; the largest for |x| beyond 448. x must not be NaN.
uint8_t float_to_fp8(float x);
// Returns an e2m1 number, of which the lowest four bits count, as fp32.
float e2m1_to_float(int bits);
// Returns the power of two that an e8m0 byte stands for, and 0 for the byte 0.
float e8m0_to_float(uint8_t bits);

}  // namespace hocket
