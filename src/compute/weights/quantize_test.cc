#include "compute/weights/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <thread>

#include "base/worker_pool.h"

namespace hocket {
namespace {

// Normally distributed numbers with a few outliers, like weights.
std::vector<float> weights_like(int count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> values(count);
  for (int i = 0; i < count; ++i) values[i] = normal(generator) * (i % 97 == 13 ? 4.0f : 1.0f);
  return values;
}

// Rows that are quantized and dequantized again.
struct RoundTrip {
  RowScratch scratch;
  ScaledRows rows;
  std::vector<float> back;
  bool finite = false;
  RoundTrip(const std::vector<float>& values, int64_t k, MatrixFormat format)
      : rows(scratch.scaled(format, std::ssize(values) / k, k)), back(values.size()) {
    const int64_t n = std::ssize(values) / k;
    finite = quantize_scaled_rows({values.data(), n, k}, rows);
    dequantize_scaled_rows(rows, {back.data(), n, k});
  }
};

double relative_error(const std::vector<float>& want, const std::vector<float>& got) {
  double error = 0, power = 0;
  for (size_t i = 0; i < want.size(); ++i)
    error += std::pow(want[i] - got[i], 2), power += std::pow(want[i], 2);
  return std::sqrt(error / power);
}

TEST(Quantize, Int8IsSymmetricAroundTheLargest) {
  const std::vector<float> values = {-127, 63.4f, 63.5f, 64.5f, 0, 127, 1, -1, 0.5f, -1.5f};
  RoundTrip trip(values, 10, {WeightFormat::int8, 64});
  ASSERT_TRUE(trip.finite);
  EXPECT_EQ(trip.rows.scales.row(0)[0], 1.0f);
  EXPECT_EQ(trip.rows.zeros.row(0)[0], 128);
  EXPECT_THAT(trip.back,
              testing::ElementsAre(-127, 63, 64, 64, 0, 127, 1, -1, 0, -2));  // ties to even
}

TEST(Quantize, Int4OfItsOwnGridIsExact) {
  std::vector<float> values(128);
  for (int i = 0; i < 128; ++i) values[i] = static_cast<float>(i % 16 - (i < 64 ? 3 : 12)) * 0.25f;
  RoundTrip trip(values, 128, {WeightFormat::int4, 64});
  EXPECT_EQ(trip.rows.zeros.row(0)[0], 3);
  EXPECT_EQ(trip.rows.zeros.row(0)[1], 12);
  EXPECT_EQ(trip.rows.scales.row(0)[0], 0.25f);
  EXPECT_EQ(trip.back, values);
}

// Asymmetric 4 bits without a search: scale and zero come from the whole extent.
std::vector<float> nearest_int4(const std::vector<float>& values, int group) {
  std::vector<float> out;
  for (size_t begin = 0; begin < values.size(); begin += group) {
    float low = 0, high = 0;
    for (int i = 0; i < group; ++i) {
      low = std::min(low, values[begin + i]), high = std::max(high, values[begin + i]);
    }
    const float scale = (high - low) / 15, zero = std::nearbyint(-low / scale);
    for (int i = 0; i < group; ++i) {
      const float number = std::nearbyint(values[begin + i] / scale) + zero;
      out.push_back((std::min(std::max(number, 0.0f), 15.0f) - zero) * scale);
    }
  }
  return out;
}

TEST(Quantize, TheSearchBeatsTheNearestNumbers) {
  const int k = 4096;
  const std::vector<float> values = weights_like(16 * k, 1);
  const double plain = relative_error(values, nearest_int4(values, 64));
  const double int4 = relative_error(values, RoundTrip(values, k, {WeightFormat::int4, 64}).back);
  const double int8 = relative_error(values, RoundTrip(values, k, {WeightFormat::int8, k}).back);
  const double fp8 = relative_error(values, RoundTrip(values, k, {WeightFormat::fp8, 128}).back);
  std::printf("relative error: int4 %.4f (nearest %.4f)  int8 %.4f  fp8 %.4f\n", int4, plain, int8,
              fp8);
  EXPECT_LT(int4, 0.97 * plain);
  EXPECT_LT(int4, 0.11);
  EXPECT_LT(int8, 0.025);
  EXPECT_LT(fp8, 0.03);
}

TEST(Quantize, EveryScaleOfWeightsGivesTheSameRelativeError) {
  const std::vector<float> values = weights_like(2048, 2);
  const double base =
      relative_error(values, RoundTrip(values, 2048, {WeightFormat::int4, 64}).back);
  for (const float factor : {0x1p-5f, 0x1p20f}) {
    std::vector<float> scaled = values;
    for (float& x : scaled) x *= factor;
    EXPECT_EQ(relative_error(scaled, RoundTrip(scaled, 2048, {WeightFormat::int4, 64}).back), base);
  }
}

// Small scales lose digits in float16: the extra error of a weight stays below 15 times half a unit
// of the last digit.
TEST(Quantize, SmallWeightsOfInt4LoseNoMoreThanTheirScales) {
  for (const float factor : {0x1p-8f, 0x1p-12f, 0x1p-16f}) {
    std::vector<float> values = weights_like(2048, 3);
    for (float& x : values) x *= factor;
    const RoundTrip trip(values, 2048, {WeightFormat::int4, 64});
    for (int i = 0; i < 2048; ++i) {
      float widest = 0;
      for (int j = i / 64 * 64; j < i / 64 * 64 + 64; ++j)
        widest = std::max(widest, std::abs(values[j]));
      ASSERT_LE(std::abs(trip.back[i] - values[i]), 0.25f * widest + 15 * 0x1p-25f) << i;
    }
  }
}

TEST(Quantize, ZerosAndTinyRowsBecomeZero) {
  for (const MatrixFormat format :
       {MatrixFormat{WeightFormat::int8, 64}, MatrixFormat{WeightFormat::int4, 64},
        MatrixFormat{WeightFormat::fp8, 128}})
    for (const float x : {0.0f, 1e-40f, -1e-30f}) {
      RoundTrip trip(std::vector<float>(64, x), 64, format);
      EXPECT_TRUE(trip.finite);
      EXPECT_THAT(trip.back, testing::Each(0.0f));
    }
}

TEST(Quantize, WhatIsNotFiniteIsRefused) {
  for (const float x :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const int at : {0, 37, 99}) {
      std::vector<float> values(100, 1.0f);
      values[at] = x;
      EXPECT_FALSE(RoundTrip(values, 100, {WeightFormat::int8, 128}).finite);
    }
}

TEST(Quantize, FlushedDenormalsChangeNoNumber) {
  std::vector<float> values = weights_like(4096, 3);
  for (size_t i = 0; i < values.size(); i += 5) values[i] = 1e-39f;
  for (size_t i = 0; i < 1024; ++i) values[i] *= 0x1p-50f;
  const RoundTrip here(values, 4096, {WeightFormat::int4, 64});
  std::vector<float> there;
  std::thread([&] {
    flush_denormals();
    there = RoundTrip(values, 4096, {WeightFormat::int4, 64}).back;
  }).join();
  EXPECT_EQ(here.back, there);
}

TEST(Quantize, Float8IsTheNearestEvenOfAllCodes) {
  for (int code = 0; code < 127; ++code) {
    const float value = fp8_to_float(static_cast<uint8_t>(code));
    EXPECT_EQ(float_to_fp8(value), code);
    EXPECT_EQ(float_to_fp8(-value), code | 0x80);
    if (code == 126) break;
    const float next = fp8_to_float(static_cast<uint8_t>(code + 1)), middle = (value + next) / 2;
    EXPECT_EQ(float_to_fp8(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(float_to_fp8(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(float_to_fp8(std::nextafter(middle, 1e9f)), code + 1);
  }
  EXPECT_EQ(float_to_fp8(448), 126);
  EXPECT_EQ(float_to_fp8(1e9f), 126);
}

TEST(Quantize, MuchPerSecond) {
  const int k = 4096, rows = 256;
  const std::vector<float> values = weights_like(rows * k, 4);
  for (const MatrixFormat format :
       {MatrixFormat{WeightFormat::int8, k}, MatrixFormat{WeightFormat::int4, 64}}) {
    RowScratch scratch;
    const ScaledRows out = scratch.scaled(format, rows, k);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(quantize_scaled_rows({values.data(), rows, k}, out));
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("quantize %s: %.0f M numbers/s in one thread\n",
                std::string(weight_format_name(format.format)).c_str(), rows * k / seconds / 1e6);
    EXPECT_NE(out.numbers.row(0)[0], out.numbers.row(rows - 1)[1]);
  }
}

}  // namespace
}  // namespace hocket
