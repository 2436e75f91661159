// Weights in the one layout that AMX tiles and the vector kernels both read:
//
//   bf16, f32, fp8   [n / 16 panels][k / 32 blocks][16 pairs][16 columns][2]
//   int8             [n / 16 panels][k / 64 blocks][16 quads][16 columns][4]
//   int4             [n / 16 panels][k / 64 blocks][8 quads][16 columns][4], two numbers per byte:
//                    quad q in the low half, quad q + 8 in the high half
//
// In the first line, element (n, k) is at panel n/16, block k/32, pair (k%32)/2, column n%16, k%2.
// n is padded to whole panels and k to whole blocks, with zeros; scales of padding columns are zero
// too. Pages of the KV cache use the same tiles (kv_layout.h).
//
// A stored number means:
//   fp8   e4m3, times the scale of its column and group of 128 k
//   int8  (number - zero) times the scale of its column and group; numbers 0..255
//   int4  the same; numbers 0..15
//
// Scales are fp32, or fp16 for int4.
#pragma once

#include <cstdint>

#include "compute/tensor/view.h"

namespace hocket {

inline constexpr int kPanelN = 16;
inline constexpr int kTileElements = kPanelN * kBlockK;
inline constexpr int kIntegerBlockK = 64;
inline constexpr int kFp8Group = 128;
// Beyond this k the int32 sums of int8 and int4 weights may overflow.
inline constexpr int kIntegerDepthMax = 65536;

constexpr int block_k(WeightFormat f) {
  return f == WeightFormat::int8 || f == WeightFormat::int4 ? kIntegerBlockK : kBlockK;
}
// Returns the bytes of one block of one panel.
constexpr int tile_bytes(WeightFormat f) {
  return f == WeightFormat::f32                               ? 2048
         : f == WeightFormat::bf16 || f == WeightFormat::int8 ? 1024
                                                              : 512;
}
constexpr int scale_size(WeightFormat f) {
  return f == WeightFormat::int4 ? 2 : 4;
}

// A matrix that the model's weight memory owns.
struct PackedWeight {
  const void* data = nullptr;
  WeightFormat format = WeightFormat::bf16;
  int n = 0, k = 0;  // logical: y[n] = sum over k
  // Values of k under one scale: 128 in fp8; in int8 and int4 32, 64, 128 or all (a multiple of
  // 64); 0: no scales.
  int group = 0;
  const std::byte* scales = nullptr;  // [panels][groups][16 columns]
  const uint8_t* zeros = nullptr;     // int8, int4: [panels][groups][16 columns]
  const float* bias = nullptr;        // [n], added to every product; or null

  int panels() const { return static_cast<int>(round_up(n, kPanelN) / kPanelN); }
  int k_blocks() const { return static_cast<int>(round_up(k, block_k(format)) / block_k(format)); }
  int groups() const { return group == 0 ? 0 : (k + group - 1) / group; }
  int64_t panel_bytes() const { return int64_t{k_blocks()} * tile_bytes(format); }
  // Bytes of the numbers, the scales and the zeros, each padded to 64.
  int64_t data_bytes() const { return panels() * panel_bytes(); }
  int64_t num_scales() const { return int64_t{panels()} * groups() * kPanelN; }
  int64_t scale_bytes() const { return round_up(num_scales() * scale_size(format), 64); }
  int64_t zero_bytes() const {
    return format == WeightFormat::fp8 ? 0 : round_up(num_scales(), 64);
  }
  int64_t bytes() const { return data_bytes() + scale_bytes() + zero_bytes(); }

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

// Packs rows [row_begin, row_begin + rows.rows) of a matrix of k = rows.cols columns into `packed`;
// padding columns are written as zero. T: Bf16, float, or uint8_t for fp8.
// Thread: any, for disjoint panels.
template <class T>
void pack_rows(View<const T> rows, int64_t row_begin, T* packed);
// Pack like pack_rows, from `rows` with one number per byte. Padding of k is written as 0 (it meets
// activations of 0).
void pack_int8_rows(View<const uint8_t> rows, int64_t row_begin, uint8_t* packed);
void pack_int4_rows(View<const uint8_t> rows, int64_t row_begin, uint8_t* packed);

// Read and write scale `at` of a matrix; a stored scale is rounded to the nearest of its format.
float scale_at(WeightFormat format, const std::byte* scales, int64_t at);
void store_scale(WeightFormat format, float scale, std::byte* scales, int64_t at);

// Returns an e4m3 number as fp32, exactly; 0x7f and 0xff are NaN.
float fp8_to_float(uint8_t bits);

}  // namespace hocket
