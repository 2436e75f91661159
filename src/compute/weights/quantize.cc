#include "compute/weights/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace hocket {
namespace {

constexpr int kLanes = 8;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));
using Bytes = uint8_t __attribute__((vector_size(kLanes)));
constexpr float kRoundToInt = 0x1.8p23f;  // x + this - this is x to the nearest even integer
constexpr float kTiny = 0x1p-60f;
constexpr float kMaxFp8 = 448;
constexpr float kMaxInt4 = 15;
constexpr float kMaxFp4 = 6;
constexpr float kNvfp4ColumnScale = 0x1p-9f;
// Widths of the grid tried; 1 is the extent of the values. The last one fills the vector.
constexpr Lanes kWidths = {1.0f, 1.04f, 0.96f, 0.92f, 0.88f, 0.84f, 0.8f, 1.0f};
constexpr int kNumWidths = kLanes - 1;

const std::array<float, 256> kFp8Values = [] {
  std::array<float, 256> values{};
  for (int i = 0; i < 256; ++i) values[i] = fp8_to_float(static_cast<uint8_t>(i));
  return values;
}();

const std::array<float, 16> kFp4Values = [] {
  std::array<float, 16> values{};
  for (int i = 0; i < 16; ++i) values[i] = e2m1_to_float(i);
  return values;
}();

struct Extent {
  float low = 0, high = 0;  // range of the values and 0
  float amax() const { return std::max(-low, high); }
};

// Calls f(lanes, begin) for all of a row; the last lanes are padded with zeros.
template <class F>
void for_lanes(const float* x, int count, F f) {
  Lanes lanes;
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    std::memcpy(&lanes, x + i, sizeof(lanes));
    f(lanes, i);
  }
  if (i == count) return;
  lanes = Lanes{};
  std::memcpy(&lanes, x + i, (count - i) * sizeof(float));
  f(lanes, i);
}

// numbers[i] = f(x[i]), an integer in 0..255.
template <class F>
void store_numbers(const float* x, int count, uint8_t* numbers, F f) {
  for_lanes(x, count, [&](const Lanes& lanes, int begin) {
    const Bytes bytes = __builtin_convertvector(f(lanes), Bytes);
    if (begin + kLanes <= count) {
      std::memcpy(numbers + begin, &bytes, kLanes);
    } else {
      std::memcpy(numbers + begin, &bytes, count - begin);
    }
  });
}

Extent extent_of(const float* x, int count) {
  Lanes low = {}, high = {};
  for_lanes(x, count, [&](const Lanes& lanes, int) {
    low = lanes < low ? lanes : low;
    high = high < lanes ? lanes : high;
  });
  Extent extent;
  for (int lane = 0; lane < kLanes; ++lane) {
    extent.low = std::min(extent.low, low[lane]);
    extent.high = std::max(extent.high, high[lane]);
  }
  return extent;
}

float fold(const Lanes& lanes) {
  float sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
  return sum;
}

bool all_finite(const float* x, int count) {
  // x - x is 0 for finite x, else NaN.
  Lanes sum = {};
  for_lanes(x, count, [&](const Lanes& lanes, int) { sum += lanes - lanes; });
  return fold(sum) == 0;
}

struct Asymmetric {
  float inverse = 0;  // 1 / scale
  float zero = 0;
  Lanes numbers(const Lanes& x) const {
    const Lanes number = x * inverse + kRoundToInt - kRoundToInt + zero, last = Lanes{} + kMaxInt4;
    const Lanes positive = number < 0 ? Lanes{} : number;
    return last < positive ? last : positive;
  }
};

// Sums over a group, of which follow a grid's error and the scale of least squares.
struct FitSums {
  float error = 0, cross = 0, square = 0;
};

FitSums fit_sums(const float* x, int count, const Asymmetric& q) {
  Lanes error = {}, cross = {}, square = {};
  for_lanes(x, count, [&](const Lanes& values, int) {
    const Lanes number = q.numbers(values) - q.zero, scaled = values * q.inverse;
    const Lanes off = scaled - number;
    error += off * off;
    cross += number * scaled;
    square += number * number;
  });
  return {fold(error), fold(cross), fold(square)};
}

// The grids of all widths, a lane each.
struct Grids {
  Lanes step = {}, inverse = {}, zero = {};
};
Grids grids_of(const Extent& extent) {
  const Lanes last = Lanes{} + kMaxInt4;
  const Lanes step = (extent.high - extent.low) * kWidths / kMaxInt4;
  const Lanes zero = -extent.low * kWidths / step + kRoundToInt - kRoundToInt;
  const Lanes positive = zero < 0 ? Lanes{} : zero;
  return {step, 1.0f / step, last < positive ? last : positive};
}

// Returns the scale, a float16. The error of a fit is in units of its own step, so errors of
// several widths are compared times width * width. No width waits for the choice between others,
// so that the processor computes several at once.
float quantize_int4_group(const float* x, int count, uint8_t* numbers, uint8_t* zero) {
  const Extent extent = extent_of(x, count);
  if (extent.amax() < kTiny) {
    std::fill_n(numbers, count, uint8_t{0});
    *zero = 0;
    return 0;
  }
  const Grids grids = grids_of(extent);
  Lanes miss = {}, along = {}, length = {};
  for (int w = 0; w < kNumWidths; ++w) {
    const FitSums sums = fit_sums(x, count, {grids.inverse[w], grids.zero[w]});
    miss[w] = sums.error, along[w] = sums.cross, length[w] = sums.square;
  }
  const Lanes gain = (along - length) * (along - length) / length, rest = miss - gain;
  Lanes error = rest < 0 ? Lanes{} : rest;
  error = (length == 0 ? miss : error) * kWidths * kWidths;
  Asymmetric best;
  float best_error = std::numeric_limits<float>::max(), scale = 0;
  for (int w = 0; w < kNumWidths; ++w) {
    if (error[w] >= best_error) continue;
    best_error = error[w];
    best = {grids.inverse[w], grids.zero[w]};
    scale = grids.step[w] * (length[w] == 0 ? 1 : along[w] / length[w]);
  }
  store_numbers(x, count, numbers, [&](const Lanes& lanes) { return best.numbers(lanes); });
  *zero = static_cast<uint8_t>(best.zero);
  return f16_to_float(float_to_f16(scale));
}

// Returns the least float16 that is not below x >= 0.
float half_from(float x) {
  const uint16_t nearest = float_to_f16(x);
  return f16_to_float(f16_to_float(nearest) < x ? static_cast<uint16_t>(nearest + 1) : nearest);
}

float quantize_int8_group(WeightFormat format, const float* x, int count, uint8_t* numbers,
                          uint8_t* zero) {
  const float amax = extent_of(x, count).amax();
  *zero = kInt8Zero;
  float scale = amax < kTiny ? 0 : amax / 127;
  if (format == WeightFormat::q8_0) scale = half_from(scale);
  const float divisor = scale == 0 ? 1 : scale;  // tiny values round to 0 by themselves
  store_numbers(x, count, numbers, [&](const Lanes& lanes) {
    return lanes / divisor + kRoundToInt - kRoundToInt + kInt8Zero;
  });
  return scale;
}

float quantize_fp8_group(const float* x, int count, uint8_t* numbers) {
  const float amax = extent_of(x, count).amax();
  const float scale = amax < kTiny ? 0 : amax / kMaxFp8;
  for (int i = 0; i < count; ++i) numbers[i] = scale == 0 ? 0 : float_to_fp8(x[i] / scale);
  return scale;
}

// Returns the nearest e2m1, ties to even; the largest for |x| beyond 6.
uint8_t float_to_e2m1(float x) {
  const float magnitude = std::abs(x);
  uint32_t code;
  if (magnitude < 1) {  // halves
    code = static_cast<uint32_t>(std::nearbyint(magnitude * 2));
  } else {
    const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
    const uint32_t rounded = (bits + 0x1fffffu + (bits >> 22 & 1u)) >> 22;  // one bit stays
    code = std::min(rounded - ((127u - 1u) << 1), 7u);
  }
  return static_cast<uint8_t>((std::signbit(x) ? 8u : 0u) | code);
}

// Returns the least power of two that is not below `least`, within the range of mxfp4 and mxfp8.
float power_of_two_from(float least) {
  int exponent;
  const float fraction = std::frexp(least, &exponent);
  return std::ldexp(1.0f, std::min(fraction == 0.5f ? exponent - 1 : exponent, 119));
}

float quantize_mx_group(WeightFormat format, const float* x, int count, uint8_t* numbers) {
  const float amax = extent_of(x, count).amax();
  std::fill_n(numbers, count, uint8_t{0});
  if (amax < kTiny) return 0;
  const bool fp8 = format == WeightFormat::mxfp8, nvfp4 = format == WeightFormat::nvfp4;
  const float outer = nvfp4 ? kNvfp4ColumnScale : 1, wanted = amax / (fp8 ? kMaxFp8 : kMaxFp4);
  const float scale =
      nvfp4 ? fp8_to_float(float_to_fp8(wanted / outer)) : power_of_two_from(wanted);
  if (scale == 0) return 0;
  for (int i = 0; i < count; ++i) {
    const float number = x[i] / (scale * outer);
    numbers[i] = fp8 ? float_to_fp8(number) : float_to_e2m1(number);
  }
  return scale;
}

}  // namespace

void dequantize_scaled_rows(const ScaledRows& rows, View<float> out) {
  const WeightFormat format = rows.format.format;
  const bool fp8 = format == WeightFormat::fp8 || format == WeightFormat::mxfp8;
  for (int64_t r = 0; r < out.rows; ++r)
    for (int64_t g = 0; g < rows.scales.cols; ++g) {
      const uint8_t* const numbers = rows.numbers.row(r);
      float* const to = out.row(r);
      const float scale = rows.scales.row(r)[g];
      const int begin = rows.group_begin(g), end = rows.group_end(g);
      if (fp8) {
        for (int i = begin; i < end; ++i) to[i] = kFp8Values[numbers[i]] * scale;
      } else if (format == WeightFormat::mxfp4) {
        for (int i = begin; i < end; ++i) to[i] = kFp4Values[numbers[i]] * scale;
      } else if (format == WeightFormat::nvfp4) {
        for (int i = begin; i < end; ++i)
          to[i] = kFp4Values[numbers[i]] * scale * rows.column_scales[r];
      } else if (has_minima(format)) {
        const BlockFactors by = rows.block_scales.row(r)[g / kScaleBlockGroups];
        const float both = by.d * scale, min = by.dmin * rows.zeros.row(r)[g];
        for (int i = begin; i < end; ++i) to[i] = both * static_cast<float>(numbers[i]) - min;
      } else if (has_table(format)) {
        const NumberTable& table = number_table(format);
        const float both = rows.block_scales.row(r)[begin / kScaleBlock].d * table.unit * scale;
        for (int i = begin; i < end; ++i)
          to[i] = both * static_cast<float>(table.numbers[numbers[i]]);
      } else if (format == WeightFormat::q6_k) {
        const float both = rows.block_scales.row(r)[begin / kScaleBlock].d * scale;
        for (int i = begin; i < end; ++i)
          to[i] = both * static_cast<float>(numbers[i] - kQ6kOffset);
      } else {
        const int zero = rows.zeros.row(r)[g];
        for (int i = begin; i < end; ++i) to[i] = static_cast<float>(numbers[i] - zero) * scale;
      }
    }
}

bool quantize_scaled_rows(View<const float> rows, const ScaledRows& out) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    if (!all_finite(rows.row(r), rows.cols)) return false;
    if (out.format.format == WeightFormat::nvfp4) out.column_scales[r] = kNvfp4ColumnScale;
    for (int64_t g = 0; g < out.scales.cols; ++g) {
      const int begin = out.group_begin(g), count = out.group_end(g) - begin;
      const float* const x = rows.row(r) + begin;
      uint8_t* const numbers = out.numbers.row(r) + begin;
      float& scale = out.scales.row(r)[g];
      switch (out.format.format) {
        case WeightFormat::fp8:
          scale = quantize_fp8_group(x, count, numbers);
          break;
        case WeightFormat::int8:
        case WeightFormat::q8_0:
          scale = quantize_int8_group(out.format.format, x, count, numbers, out.zeros.row(r) + g);
          break;
        case WeightFormat::mxfp4:
        case WeightFormat::mxfp8:
        case WeightFormat::nvfp4:
          scale = quantize_mx_group(out.format.format, x, count, numbers);
          break;
        default:
          HOCKET_CHECK(out.format.format == WeightFormat::int4);
          scale = quantize_int4_group(x, count, numbers, out.zeros.row(r) + g);
      }
    }
  }
  return true;
}

ScaledRows RowScratch::scaled(MatrixFormat format, int64_t rows, int64_t k) {
  HOCKET_CHECK(format.is_scaled());
  const int64_t groups = (k + format.group - 1) / format.group;
  if (std::ssize(numbers_) < rows * k) numbers_.resize(rows * k);
  const int64_t num_scales = has_scales_of_16(format.format) ? 2 * groups : groups;
  if (std::ssize(scales_) < rows * num_scales)
    scales_.resize(rows * num_scales), zeros_.resize(rows * num_scales);
  ScaledRows out{format, {numbers_.data(), rows, k}, {scales_.data(), rows, num_scales}, {}, {},
                 {}};
  if (is_integer(format.format)) out.zeros = {zeros_.data(), rows, groups};
  if (has_block_scales(format.format)) {
    const int64_t blocks = round_up(groups, kScaleBlockGroups) / kScaleBlockGroups;
    if (std::ssize(block_scales_) < rows * blocks) block_scales_.resize(rows * blocks);
    out.block_scales = {block_scales_.data(), rows, blocks};
  }
  if (format.format == WeightFormat::nvfp4) {
    if (std::ssize(column_scales_) < rows) column_scales_.resize(rows);
    out.column_scales = {column_scales_.data(), static_cast<size_t>(rows)};
  }
  return out;
}

}  // namespace hocket
