#include "compute/kernels/arithmetic/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "base/worker_pool.h"
#include "compute/kernels/arithmetic/lane.h"

namespace hocket {
namespace {

// Returns the distance of `got` from the exact value, in units of its last place.
double ulps(float got, double exact) {
  return std::abs(double{got} - exact) / std::ldexp(1.0, std::ilogb(exact) - 23);
}

struct Range {
  float from, to;
};

// Returns the worst error over about a million floats of both signs, evenly spaced over the bit
// patterns of the range.
double worst_error(Range range, const std::function<float(float)>& got,
                   const std::function<double(double)>& exact) {
  const auto from = std::bit_cast<uint32_t>(range.from), to = std::bit_cast<uint32_t>(range.to);
  const uint32_t step = std::max<uint32_t>(1, (to - from) / 500'000);
  double worst = 0;
  for (uint64_t bits = from; bits <= to; bits += step) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const double want = exact(x);
    if (std::abs(want) < 0x1p-126 || std::abs(want) > 3.4028234e38) continue;
    worst = std::max(worst, ulps(got(x), want));
  }
  return worst;
}

class MathTest : public testing::Test {
 protected:
  void SetUp() override { flush_denormals(); }
};

TEST_F(MathTest, ExpIsWithinTwoUlp) {
  const auto exact = [](double x) { return std::exp(x); };
  EXPECT_LE(worst_error({1e-30f, 88.72f}, ref::exp, exact), 1.1);
  EXPECT_LE(worst_error({-1e-30f, -87.33f}, ref::exp, exact), 1.1);
}

TEST_F(MathTest, LogIsWithinTwoUlp) {
  EXPECT_LE(worst_error({1e-37f, 3e38f}, ref::log, [](double x) { return std::log(x); }), 1.5);
  const auto log = [](double x) { return std::log(x); };
  EXPECT_LE(worst_error({0.5f, 0x1.fffffep-1f}, ref::log, log), 1.5);
  EXPECT_LE(worst_error({0x1.000002p0f, 2.0f}, ref::log, log), 1.5);
  EXPECT_EQ(ref::log(1), 0);
}

TEST_F(MathTest, SiluAndSigmoidAreWithinTwoUlp) {
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto sigmoid_ref = [](float x) { return math::sigmoid(ref::Lane{x}).x; };
  EXPECT_LE(worst_error({1e-30f, 200.0f}, ref::silu, silu), 2);
  EXPECT_LE(worst_error({-1e-30f, -80.0f}, ref::silu, silu), 2);
  EXPECT_LE(worst_error({1e-30f, 200.0f}, sigmoid_ref, sigmoid), 2.1);
  EXPECT_LE(worst_error({-1e-30f, -80.0f}, sigmoid_ref, sigmoid), 2.1);
}

TEST_F(MathTest, SineAndCosineAreWithinTwoUlpToThreeHundredThousand) {
  const auto sin = [](float x) { return math::sin_cos(ref::Lane{x}).sin.x; };
  const auto cos = [](float x) { return math::sin_cos(ref::Lane{x}).cos.x; };
  for (const Range range : {Range{1e-30f, 1.0f}, Range{1.0f, 1000.0f}, Range{1000.0f, 3e5f}}) {
    EXPECT_LE(worst_error(range, sin, [](double x) { return std::sin(x); }), 2) << range.to;
    EXPECT_LE(worst_error(range, cos, [](double x) { return std::cos(x); }), 2) << range.to;
  }
  for (int x = -300'000; x <= 300'000; ++x) {
    if (x == 0) continue;
    ASSERT_LE(ulps(sin(static_cast<float>(x)), std::sin(x)), 2) << x;
    ASSERT_LE(ulps(cos(static_cast<float>(x)), std::cos(x)), 2) << x;
  }
}

TEST_F(MathTest, TanhIsWithinThreeUlp) {
  const auto tanh = [](float x) { return math::tanh(ref::Lane{x}).x; };
  const auto exact = [](double x) { return std::tanh(x); };
  EXPECT_LE(worst_error({1e-30f, 100.0f}, tanh, exact), 3);
  EXPECT_LE(worst_error({-1e-30f, -100.0f}, tanh, exact), 3);
  EXPECT_LE(worst_error({0.5f, 2.0f}, tanh, exact), 3);
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(tanh(inf), 1);
  EXPECT_EQ(tanh(-inf), -1);
  EXPECT_EQ(std::bit_cast<uint32_t>(tanh(-0.0f)), 0x80000000u);
  EXPECT_TRUE(std::isnan(tanh(std::nanf(""))));
}

TEST_F(MathTest, EdgesAreExact) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ref::exp(0.0f), 1.0f);
  EXPECT_EQ(ref::exp(-0.0f), 1.0f);
  EXPECT_EQ(std::bit_cast<uint32_t>(ref::exp(-inf)), 0u);
  EXPECT_EQ(std::bit_cast<uint32_t>(ref::exp(-88.0f)), 0u);
  EXPECT_EQ(ref::exp(inf), inf);
  EXPECT_EQ(ref::exp(89.0f), inf);
  EXPECT_TRUE(std::isnan(ref::exp(std::nanf(""))));
  EXPECT_EQ(ref::log(0.0f), -inf);
  EXPECT_EQ(ref::log(inf), inf);
  EXPECT_TRUE(std::isnan(ref::log(std::nanf(""))));
  EXPECT_EQ(math::sin_cos(ref::Lane{0}).cos.x, 1.0f);
  EXPECT_EQ(math::sin_cos(ref::Lane{0}).sin.x, 0.0f);
  EXPECT_TRUE(std::isnan(math::sin_cos(ref::Lane{inf}).sin.x));
}

}  // namespace
}  // namespace hocket
