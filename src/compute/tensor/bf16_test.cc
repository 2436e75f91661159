#include "compute/tensor/bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace hocket {
namespace {

TEST(Bf16, EveryNumberSurvivesTheWayThere) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Bf16 x{static_cast<uint16_t>(bits)};
    if (std::isnan(to_float(x))) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(to_float(x)))));
    } else {
      EXPECT_EQ(to_bf16(to_float(x)), x);
    }
  }
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1p-8f)), 1.0f);                       // halfway: to even
  EXPECT_EQ(to_float(to_bf16(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);         // halfway: to even, up
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1p-8f + 0x1p-20f)), 1.0f + 0x1p-7f);  // above halfway
  EXPECT_EQ(to_float(to_bf16(-1.0f - 0x1p-9f)), -1.0f);
  EXPECT_EQ(to_float(to_bf16(std::numeric_limits<float>::max())),
            std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(F16, EveryNumberSurvivesTheWayThere) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = f16_to_float(static_cast<uint16_t>(bits));
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(x))));
    } else {
      EXPECT_EQ(float_to_f16(x), bits);
    }
  }
}

// A value between two neighbours rounds to the nearer one, a value halfway to the even one; the
// last neighbour is 65536.
TEST(F16, RoundsToNearestEven) {
  for (uint16_t bits = 0; bits < 0x7c00; ++bits) {
    const auto next = static_cast<uint16_t>(bits + 1);
    const float low = f16_to_float(bits), high = next == 0x7c00 ? 65536 : f16_to_float(next);
    const float middle = (low + high) / 2;
    ASSERT_EQ(float_to_f16(middle), bits % 2 == 0 ? bits : next);
    ASSERT_EQ(float_to_f16(std::nextafter(middle, low)), bits);
    ASSERT_EQ(float_to_f16(-std::nextafter(middle, high)), next | 0x8000);
  }
  EXPECT_EQ(float_to_f16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(float_to_f16(-std::numeric_limits<float>::infinity()), 0xfc00);
}

TEST(F16, EveryFiniteNumberIsExact) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 0x1f);
    const double mantissa = bits & 0x3ff, sign = (bits & 0x8000) != 0 ? -1 : 1;
    const float x = f16_to_float(static_cast<uint16_t>(bits));
    if (exponent == 0x1f) {
      EXPECT_EQ(std::isnan(x), mantissa != 0);
      EXPECT_EQ(std::isinf(x), mantissa == 0);
    } else {
      const double expected =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      EXPECT_EQ(static_cast<double>(x), sign * expected);
      EXPECT_EQ(std::signbit(x), sign < 0);
    }
  }
}

}  // namespace
}  // namespace hocket
