// Converts between rows of numbers under scales and fp32:
//
//   fp8          number (e4m3) * scale
//   int8, int4   (number - zero) * scale
//   q8_0         the same with zeros of 128
//   q4_k         number * (block_scale * scale) - block_min * min
//   q5_k         the same
//   iq4 to iq1_m   table[number] * (block_scale * unit * scale)
//   q6_k         (number - 32) * (block_scale * scale)
//   mxfp4        number (e2m1) * scale, a power of two
//   mxfp8        number (e4m3) * scale, a power of two
//   nvfp4        number (e2m1) * scale (e4m3), exactly, then * column_scale
//
// Groups of neighbouring k in a row share scale and zero, as in packed_weight.h. Private to the
// room.   Thread: any; every function is pure, and gives equal results in threads with and without
// flushed denormals.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/tensor/view.h"

namespace hocket {

inline constexpr int kOnTheFlyInt4Group = 64;  // the group of --quantization int4
inline constexpr int kInt8Zero = 128;  // the stored number that means 0 if no zero point is stored

struct MatrixFormat {
  WeightFormat format = WeightFormat::bf16;
  int group = 0;  // PackedWeight::group
  bool is_scaled() const { return group != 0; }
  friend bool operator==(const MatrixFormat&, const MatrixFormat&) = default;
};
// Returns the group that puts the whole of k under one scale.
constexpr int whole_group(int k) {
  return static_cast<int>(round_up(k, kIntegerBlockK));
}

// The factors of the integer scales and minima of eight groups: float16 numbers.
struct BlockFactors {
  float d = 0, dmin = 0;
};

// Views of scaled rows; the caller owns the memory.
struct ScaledRows {
  MatrixFormat format;
  View<uint8_t> numbers;            // [rows, k]
  View<float> scales;               // [rows, groups]; with block scales: integers, and those of
                                    // 16 numbers [rows, 2 * groups]
  View<uint8_t> zeros;              // [rows, groups]; int8, int4, q8_0: zeros; q4_k, q5_k: minima
  View<BlockFactors> block_scales;  // [rows, blocks], if the format has them
  std::span<float> column_scales;   // [rows]; nvfp4

  // k under one scale.
  int scale_k() const { return has_scales_of_16(format.format) ? format.group / 2 : format.group; }
  int group_begin(int64_t g) const { return static_cast<int>(g) * scale_k(); }
  int group_end(int64_t g) const {
    const int64_t end = (g + 1) * scale_k();
    return static_cast<int>(end < numbers.cols ? end : numbers.cols);
  }
};

// Returns true for the e8m0 scales whose products with every number of mxfp4 or mxfp8 are zero or
// normal in bf16.
constexpr bool fits_bf16(WeightFormat format, uint8_t e8m0) {
  return format == WeightFormat::mxfp4 ? e8m0 >= 2 && e8m0 <= 252 : e8m0 >= 10 && e8m0 <= 246;
}
inline bool all_zero(const uint8_t* numbers, int count, int magnitude_bits) {
  return std::all_of(numbers, numbers + count, [&](int x) { return (x & magnitude_bits) == 0; });
}

// Uses one multiplication per element, two for nvfp4. Shapes: out [rows, k].
void dequantize_scaled_rows(const ScaledRows& rows, View<float> out);

// Chooses scales, zeros and numbers of `out`:
//   fp8    scale = amax / 448, nearest even
//   int8   scale = amax / 127, nearest even, symmetric around 128
//   q8_0   as int8, with the scale rounded up to float16, which is infinite beyond its range
//   int4   asymmetric; tries a few widths of the grid, each with the scale of least squares, and
//          keeps the one with the least squared error; then rounds the scale to the nearest
//          float16, which is infinite beyond its range
//   mxfp4, mxfp8   scale = the least power of two that reaches amax, nearest even
//   nvfp4  column_scale = 2^-9; scale = amax / 6 / column_scale as e4m3, nearest even, at most 448
// Groups whose amax is below 2^-60 become zeros; in int4 also those whose scale rounds to 0.
// Returns false if a value is NaN or infinite. Precondition: out.format has no block scales; such
// rows come from files only.
[[nodiscard]] bool quantize_scaled_rows(View<const float> rows, const ScaledRows& out);

// One worker's memory for the rows in progress; it grows and never shrinks. A view is valid until
// the next call of the same function.
class RowScratch {
 public:
  int64_t changed_scales = 0;  // stored scales of int4 that float16 does not hold, so far

  ScaledRows scaled(MatrixFormat format, int64_t rows, int64_t k);
  template <class T>  // T is Bf16 or float
  View<T> values(int64_t rows, int64_t k) {
    std::vector<T>& memory = memory_of(T{});
    if (std::ssize(memory) < rows * k) memory.resize(rows * k);
    return {memory.data(), rows, k};
  }

 private:
  std::vector<float>& memory_of(float) { return floats_; }
  std::vector<Bf16>& memory_of(Bf16) { return halves_; }
  std::vector<float> floats_, scales_, column_scales_;
  std::vector<Bf16> halves_;
  std::vector<uint8_t> numbers_, zeros_;
  std::vector<BlockFactors> block_scales_;
};

inline int64_t count_changed_scales(std::span<const RowScratch> workers) {
  int64_t all = 0;
  for (const RowScratch& one : workers) all += one.changed_scales;
  return all;
}

}  // namespace hocket
