// Quantizing rows to int8 and back: QuantizeRow in arithmetic/rows.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/worker_pool.h"
#include "compute/kernels/arithmetic/math.h"
#include "compute/kernels/cases/row_cases.h"
#include "compute/kernels/row_kernels.h"

namespace hocket {
namespace {

class QuantizeRowTest : public testing::Test {
 protected:
  void SetUp() override { flush_denormals(); }
  std::mt19937 random_{7};
};

// The output of quantize(): all of q, scales and sums.
struct Quantized {
  std::vector<int8_t> q;
  std::vector<float> scales;
  std::vector<int32_t> sums;
};
template <class T>
Quantized quantized(Isa isa, const std::vector<T>& x, int64_t group) {
  const auto n = static_cast<int64_t>(x.size());
  const int64_t padded = round_up(n, 64), groups = (n + group - 1) / group;
  Quantized out = {std::vector<int8_t>(padded + 16, 77), std::vector<float>(groups + 1, -7),
                   std::vector<int32_t>(groups + 1, -7)};
  row_kernels(isa).of<T>().quantize({.x = x.data(),
                                     .n = n,
                                     .group = group,
                                     .padded = padded,
                                     .q = out.q.data(),
                                     .scales = out.scales.data(),
                                     .sums = out.sums.data()});
  return out;
}

template <class T>
void expect_same_quantized(const std::vector<float>& numbers, int64_t group) {
  std::vector<T> x;
  for (float v : numbers) x.push_back(from_float<T>(v));
  const Quantized expected = quantized<T>(Isa::ref, x, group);
  for (Isa isa : cases::vector_isas()) {
    const Quantized got = quantized<T>(isa, x, group);
    ASSERT_EQ(got.q, expected.q) << isa_name(isa) << " n " << x.size() << " group " << group;
    ASSERT_EQ(std::memcmp(got.scales.data(), expected.scales.data(), got.scales.size() * 4), 0);
    ASSERT_EQ(got.sums, expected.sums) << isa_name(isa);
  }
}

TEST_F(QuantizeRowTest, Groups) {
  for (int n : cases::kRowLengths) {
    for (int64_t group : {32, 48, 100, 128, n}) {
      for (int step = 0; step < 4; ++step) {
        std::vector<float> x = cases::random_row(n, step == 2 ? 0x1p-101f : 3, random_);
        if (step == 1) cases::insert_special_values(x, random_);
        if (step == 3)  // groups of very different size, one with a NaN
          for (int64_t i = 0; i < n; ++i) x[i] *= std::exp2(static_cast<float>(i / group % 7 * 9));
        if (step == 3 && n > 40) x[n / 3] = std::nanf("");
        expect_same_quantized<Bf16>(x, group);
        expect_same_quantized<float>(x, group);
      }
    }
  }
}

// Compares every number under scales of every kind, also NaN.
template <class T>
void expect_same_dequantized(const std::vector<int8_t>& q, float scale) {
  const auto n = static_cast<int64_t>(q.size());
  std::vector<float> expected;
  for (const int8_t number : q)
    expected.push_back(to_float(from_float<T>(static_cast<float>(number) * scale)));
  std::vector<Isa> isas = {Isa::ref};
  for (const Isa isa : cases::vector_isas()) isas.push_back(isa);
  for (const Isa isa : isas) {
    std::vector<T> x(n + 1, from_float<T>(77));
    row_kernels(isa).of<T>().dequantize(q.data(), scale, n, x.data());
    for (int64_t i = 0; i < n; ++i) {
      const float got = to_float(x[i]);
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(got)) << isa_name(isa) << " " << i;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(expected[i]))
            << isa_name(isa) << " n " << n << " scale " << scale << " at " << i;
      }
    }
    ASSERT_EQ(to_float(x[n]), 77) << isa_name(isa) << " wrote past its end";
  }
}

TEST_F(QuantizeRowTest, AndBack) {
  for (const int n : cases::kRowLengths) {
    std::vector<int8_t> q(n);
    for (int i = 0; i < n; ++i) q[i] = static_cast<int8_t>(i < 256 ? i - 128 : random_());
    std::ranges::shuffle(q, random_);
    for (const float scale : {0.0f, 0.0173f, 1.0f, -3e-5f, 0x1p-100f / 127, 1e-38f, 0x1p121f,
                              math::kInfinity, std::nanf("")}) {
      expect_same_dequantized<Bf16>(q, scale);
      expect_same_dequantized<float>(q, scale);
    }
  }
}

TEST_F(QuantizeRowTest, NumbersAreWithinHalfAStep) {
  const int64_t n = 300, group = 64;
  const std::vector<float> x = cases::random_row(n, 1, random_);
  const Quantized got = quantized(Isa::ref, x, group);
  for (int64_t g = 0; g * group < n; ++g) {
    const int64_t end = std::min(n, (g + 1) * group);
    double amax = 0;
    int sum = 0, largest = 0;
    for (int64_t i = g * group; i < end; ++i) {
      amax = std::max(amax, std::abs(double{x[i]}));
      largest = std::max(largest, std::abs(int{got.q[i]}));
      sum += got.q[i];
      ASSERT_LE(std::abs(got.q[i] * double{got.scales[g]} - x[i]), 0.50001 * got.scales[g]);
    }
    EXPECT_NEAR(got.scales[g], amax / 127, 1e-7 * amax);
    EXPECT_EQ(largest, 127);
    EXPECT_EQ(got.sums[g], sum);
  }
  for (int64_t i = n; i < round_up(n, 64); ++i) EXPECT_EQ(got.q[i], 0);
  EXPECT_EQ(got.q[round_up(n, 64)], 77);
}

TEST_F(QuantizeRowTest, TiesTinyAndSpoiledGroups) {
  const float inf = math::kInfinity, nan = std::nanf("");
  const std::vector<float> x = {127,
                                0.5f,
                                1.5f,
                                -2.5f,  // ties to even
                                0,
                                -0.0f,
                                0,
                                0,  // zeros
                                1e-31f,
                                -7e-31f,
                                1e-40f,
                                0,  // below 2^-100
                                1,
                                inf,
                                2,
                                3,  // infinity
                                1,
                                2,
                                nan,
                                3,  // NaN
                                -inf,
                                nan,
                                0,
                                0,  // both
                                0x1p-100f,
                                -0x1p-100f,
                                0,
                                0,  // the smallest amax that counts
                                -0x1.fffffep127f,
                                1,
                                0x1p127f,
                                0x1p120f,  // the largest
                                -5};       // a short group
  for (Isa isa : {Isa::ref, Isa::avx2, Isa::avx512}) {
    if (isa > detect_isa()) continue;
    const Quantized got = quantized(isa, x, 4);
    EXPECT_EQ(std::vector<int8_t>(got.q.begin(), got.q.begin() + x.size()),
              (std::vector<int8_t>{127, 0, 2, -2, 0, 0, 0, 0,   0,    0, 0, 0,    0, 0,  0, 0,   0,
                                   0,   0, 0, 0,  0, 0, 0, 127, -127, 0, 0, -127, 0, 64, 0, -127}))
        << isa_name(isa);
    EXPECT_EQ(got.sums, (std::vector<int32_t>{127, 0, 0, 0, 0, 0, 0, -63, -127, -7}));
    EXPECT_EQ(got.scales[0], 1);
    EXPECT_EQ(got.scales[1], 0);
    EXPECT_EQ(got.scales[2], 0);
    for (int g : {3, 4, 5}) EXPECT_TRUE(std::isnan(got.scales[g])) << g;
    EXPECT_EQ(got.scales[6], 0x1p-100f / 127);
  }
}

}  // namespace
}  // namespace hocket
