#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "base/worker_pool.h"
#include "compute/kernels/cases/scaled_cases.h"
#include "compute/kernels/task_product.h"

namespace hocket {
namespace {

using cases::ScaledCase;
using cases::Values;

class ScaledProductTest : public testing::Test {
 protected:
  void SetUp() override { flush_denormals(); }
};

std::string name_of(const ScaledCase& c) {
  return std::string(weight_format_name(c.format)) + " group " + std::to_string(c.group) +
         " rows " + std::to_string(c.rows) + " k " + std::to_string(c.k) + " n " +
         std::to_string(c.n);
}

void run(Isa isa, WeightFormat format, const ScaledProduct<Bf16>& p) {
  const ProductKernels& kernels = product_kernels(isa);
  (format == WeightFormat::fp8 ? kernels.fp8 : kernels.mx)(p);
}
void run(Isa isa, WeightFormat format, const ScaledProduct<int8_t>& p) {
  product_kernels(isa).integer(format)(p);
}

void set_scales(const PackedWeight& w, float scale) {
  for (int64_t i = 0; i < w.num_scales(); ++i)
    store_scale(w.format, scale, const_cast<std::byte*>(w.scales), i);
}

// Returns all of y from one level, including the gaps between its rows.
template <class X>
std::vector<float> result(Isa isa, const ScaledCase& c, ScaledProduct<X> p) {
  const Buffer scratch = *Buffer::allocate(scaled_product_scratch_bytes(c.k));
  constexpr int kRowGap = 3;
  p.y_stride = p.panels * kPanelN + kRowGap;
  std::vector<float> y(c.rows * p.y_stride + 1, 7.0f);
  p.y = y.data();
  p.scratch = scratch.data();
  run(isa, c.format, p);
  return y;
}

template <class X>
void expect_same_bits(const ScaledCase& c, const ScaledProduct<X>& p) {
  const std::vector<float> expected = result(Isa::ref, c, p);
  for (Isa isa : cases::vector_isas()) {
    const std::vector<float> got = result(isa, c, p);
    ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
        << isa_name(isa) << " " << name_of(c);
  }
}

ScaledProduct<Bf16> product_of(const PackedWeight& w, const cases::PaddedRows<Bf16>& x) {
  auto p = scaled_product_of<Bf16>(w, 0, w.panels());
  p.x = x.view.data;
  p.x_stride = x.view.stride;
  p.rows = static_cast<int>(x.view.rows);
  return p;
}
ScaledProduct<int8_t> product_of(const PackedWeight& w, const cases::QuantizedRows& x, int rows) {
  auto p = scaled_product_of<int8_t>(w, 0, w.panels());
  p.x = x.data.data();
  p.x_stride = x.stride;
  p.x_scales = x.scales.data();
  p.x_sums = x.sums.data();
  p.rows = rows;
  return p;
}

TEST_F(ScaledProductTest, EveryBodyGivesTheBitsOfRef) {
  uint32_t seed = 0;
  for (const ScaledCase& c : cases::scaled_cases()) {
    std::mt19937 random(++seed);
    const Values kind = cases::kAllValues[seed % std::size(cases::kAllValues)];
    const cases::ScaledMatrix w = cases::scaled_matrix(c, random, kind);
    if (cases::takes_bf16(c.format)) {
      const auto x = cases::padded_rows<Bf16>(c.rows, c.k, 8, kind, random);
      expect_same_bits(c, product_of(w.weight, x));
    } else {
      const auto x = cases::quantized_rows(w.weight, c.rows, random);
      expect_same_bits(c, product_of(w.weight, x, c.rows));
    }
    if (HasFatalFailure()) return;
  }
}

// Every e4m3 number except NaN, alone in its row, on every body: widening is exact.
TEST_F(ScaledProductTest, EveryFp8NumberIsWidenedExactly) {
  for (int rows : {1, 16}) {
    const ScaledCase c{WeightFormat::fp8, kFp8Group, rows, 32, 256};
    std::mt19937 random(1);
    cases::ScaledMatrix w = cases::scaled_matrix(c, random);
    for (int n = 0; n < c.n; ++n)
      for (int k = 0; k < c.k; ++k)
        w.numbers[n * c.k + k] = static_cast<uint8_t>(k == n % c.k && (n & 0x7f) != 0x7f ? n : 0);
    cases::pack_numbers(View<const uint8_t>(w.numbers.data(), c.n, c.k), 0, w.weight);
    set_scales(w.weight, 1.0f);
    auto x = cases::padded_rows<Bf16>(rows, c.k, 0, Values::normal, random);
    std::fill(x.data.begin(), x.data.end(), to_bf16(1.0f));
    std::vector<Isa> isas = cases::vector_isas();
    isas.push_back(Isa::ref);
    for (Isa isa : isas) {
      const std::vector<float> y = result(isa, c, product_of(w.weight, x));
      for (int n = 0; n < c.n; ++n) {
        const int magnitude = n & 0x7f, exponent = magnitude >> 3, mantissa = magnitude & 7;
        double expected =
            exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
        if (magnitude == 0x7f) expected = 0;
        EXPECT_EQ(y[n], n < 128 ? expected : -expected) << isa_name(isa) << " " << n;
      }
    }
  }
}

// Every number of mxfp4, mxfp8 and nvfp4 under scales from the least to the largest, alone in its
// row, on every body: number times scale is exact. Groups beside it have other scales.
TEST_F(ScaledProductTest, EveryMxNumberIsWidenedExactly) {
  struct Kind {
    WeightFormat format;
    std::vector<int> scales;  // bytes
  };
  for (const Kind& kind : {Kind{WeightFormat::mxfp4, {2, 3, 100, 127, 200, 252}},
                           Kind{WeightFormat::mxfp8, {10, 11, 100, 127, 200, 246}},
                           Kind{WeightFormat::nvfp4, {1, 2, 7, 8, 0x38, 0x7d, 0x7e}}})
    for (const int bits : kind.scales)
      for (int rows : {1, 8, 16}) {
        const int numbers = kind.format == WeightFormat::mxfp8 ? 256 : 16;
        const ScaledCase c{kind.format, cases::mx_group(kind.format), rows, 96, numbers * 3};
        std::mt19937 random(1);
        cases::ScaledMatrix w = cases::scaled_matrix(c, random);
        const bool fp8 = kind.format == WeightFormat::mxfp8;
        const auto number_of = [&](int n) { return fp8 && (n & 0x7f) == 0x7f ? 0 : n; };
        const auto place_of = [](int n) { return n * 7 % 96; };
        for (int n = 0; n < c.n; ++n)
          for (int k = 0; k < c.k; ++k)
            w.numbers[n * c.k + k] =
                static_cast<uint8_t>(k == place_of(n) ? number_of(n % numbers) : 0);
        cases::pack_numbers(View<const uint8_t>(w.numbers.data(), c.n, c.k), 0, w.weight);
        for (int n = 0; n < c.n; ++n)
          for (int g = 0; g < w.weight.groups(); ++g)
            const_cast<std::byte*>(w.weight.scales)[w.weight.scale_index(n, g)] =
                static_cast<std::byte>(g == place_of(n) / c.group ? bits : 0x30);
        auto x = cases::padded_rows<Bf16>(rows, c.k, 0, Values::normal, random);
        std::fill(x.data.begin(), x.data.end(), to_bf16(1.0f));
        std::vector<Isa> isas = cases::vector_isas();
        isas.push_back(Isa::ref);
        for (Isa isa : isas) {
          const std::vector<float> y = result(isa, c, product_of(w.weight, x));
          for (int n = 0; n < c.n; ++n) {
            const int number = number_of(n % numbers);
            const double value =
                fp8 ? fp8_to_float(static_cast<uint8_t>(number))
                    : std::array{0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0}[number & 7] *
                          (number > 7 ? -1 : 1);
            const double scale = kind.format == WeightFormat::nvfp4
                                     ? fp8_to_float(static_cast<uint8_t>(bits))
                                     : std::ldexp(1.0, bits - 127);
            ASSERT_EQ(y[n], value * scale) << isa_name(isa) << " " << weight_format_name(c.format)
                                           << " number " << number << " scale " << bits;
          }
        }
      }
}

// Rows of one exponent and weights of one scale, near the least and the largest product that is no
// denormal and does not overflow: bodies that scale sums in place of weights stop in time.
TEST_F(ScaledProductTest, BlocksOfMxfp4NearTheEndsOfFloat) {
  std::mt19937 random(7);
  for (int exponent : {-120, -117, -90, 60, 100, 117, 120})
    for (int distance = -4; distance <= 4; ++distance) {
      const int border = exponent < 0 ? 9 - exponent : 245 - exponent, scale = border + distance;
      if (scale < 2 || scale > 252) continue;
      for (int rows : {1, 3, 8}) {
        const ScaledCase c{WeightFormat::mxfp4, kMxGroup, rows, 96, 32};
        const cases::ScaledMatrix w = cases::scaled_matrix(c, random);
        set_scales(w.weight, e8m0_to_float(static_cast<uint8_t>(scale)));
        auto x = cases::padded_rows<Bf16>(rows, c.k, 0, Values::normal, random);
        for (Bf16& number : x.data) {
          const float plain = 1.0f + static_cast<float>(random() % 128) / 128;
          const float value = std::ldexp(random() % 2 == 0 ? plain : -plain, exponent);
          number = to_bf16(random() % 5 == 0 ? 0.0f : value);
        }
        expect_same_bits(c, product_of(w.weight, x));
        if (HasFatalFailure()) return;
      }
    }
}

// Weights of mxfp4, mxfp8 and nvfp4 give the bits of their values as bf16 weights.
TEST_F(ScaledProductTest, MxWeightsAreTheirDequantizedTwins) {
  uint32_t seed = 300;
  for (const ScaledCase& c : cases::scaled_cases()) {
    if (!is_mx(c.format) || c.rows == 0) continue;
    std::mt19937 random(++seed);
    const cases::ScaledMatrix w = cases::scaled_matrix(c, random);
    std::vector<Bf16> values(int64_t{c.n} * c.k);
    for (int64_t i = 0; i < std::ssize(values); ++i) {
      const double value = w.value(static_cast<int>(i / c.k), static_cast<int>(i % c.k));
      values[i] = to_bf16(static_cast<float>(value));
      ASSERT_EQ(static_cast<double>(to_float(values[i])), value);
    }
    PackedWeight twin{.n = c.n, .k = c.k};
    const Buffer memory = *Buffer::allocate(twin.bytes());
    twin.data = memory.data();
    pack_rows<Bf16>(View<const Bf16>(values.data(), c.n, c.k), 0,
                    reinterpret_cast<Bf16*>(memory.data()));
    const auto x = cases::padded_rows<Bf16>(c.rows, c.k, 8, Values::normal, random);
    const std::vector<float> y = result(Isa::ref, c, product_of(w.weight, x));
    const int64_t columns = int64_t{twin.panels()} * kPanelN;
    std::vector<float> expected(c.rows * columns);
    product_kernels(Isa::ref).bf16({x.view.data, x.view.stride, c.rows, twin.panel_as<Bf16>(0),
                                    int64_t{twin.k_blocks()} * kTileElements, twin.panels(),
                                    twin.k_blocks(), expected.data(), columns, false, nullptr});
    const int64_t stride = static_cast<int64_t>(y.size()) / c.rows;
    for (int row = 0; row < c.rows; ++row)
      ASSERT_EQ(std::memcmp(&y[row * stride], &expected[row * columns], c.n * sizeof(float)), 0)
          << name_of(c);
  }
}

// Compares ref with a sum in double of the values that the stored numbers stand for. fp32 rounds
// each of a few terms.
TEST_F(ScaledProductTest, RefIsTheProductOfWhatTheNumbersMean) {
  uint32_t seed = 100;
  for (const ScaledCase& c : cases::scaled_cases()) {
    if (c.rows != 3 && c.rows != 35) continue;
    std::mt19937 random(++seed);
    const cases::ScaledMatrix w = cases::scaled_matrix(c, random);
    const auto bf16 = cases::padded_rows<Bf16>(c.rows, c.k, 8, Values::normal, random);
    const auto int8 = cases::quantized_rows(w.weight, c.rows, random);
    const bool bf16_rows = cases::takes_bf16(c.format);
    const std::vector<float> y = bf16_rows
                                     ? result(Isa::ref, c, product_of(w.weight, bf16))
                                     : result(Isa::ref, c, product_of(w.weight, int8, c.rows));
    const int64_t stride = static_cast<int64_t>(y.size()) / c.rows;
    for (int row = 0; row < c.rows; ++row)
      for (int n = 0; n < c.n; ++n) {
        double sum = 0, size = 0;
        for (int k = 0; k < c.k; ++k) {
          const double x = bf16_rows
                               ? static_cast<double>(to_float(bf16.view.row(row)[k]))
                               : int8.data[row * int8.stride + k] *
                                     static_cast<double>(
                                         int8.scales[row * w.weight.groups() + k / w.weight.group]);
          sum += x * w.value(n, k);
          size += std::abs(x) * (std::abs(w.value(n, k)) + 2 * std::abs(w.minimum(n, k)));
        }
        ASSERT_NEAR(y[row * stride + n], sum, size * 2e-6 + 1e-30)
            << name_of(c) << " at " << row << ", " << n;
      }
  }
}

// The largest numbers, over the largest k, whose sums just fit into int32, and over the largest k
// whose x_sum fits into 16 bits; with the least and the largest zero point. AVX2 sums int4 in 16
// bits at first.
TEST_F(ScaledProductTest, TheLargestSumsAreExact) {
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::int4})
    for (int k : {256, 320, kMaxIntegerDepth})
      for (const bool zero_is_largest : {false, true})
        for (const int x : {-127, 127})
          for (int rows : {1, 9}) {
            const int largest = format == WeightFormat::int8 ? 255 : 15;
            const int zero = zero_is_largest ? largest : 0;
            const ScaledCase c{format, 0, rows, k, 32};
            std::mt19937 random(1);
            const cases::ScaledMatrix w = cases::scaled_matrix(c, random);
            std::memset(w.memory.data(), 255, w.weight.data_bytes());
            set_scales(w.weight, 1.0f);
            std::fill_n(const_cast<uint8_t*>(w.weight.zeros), c.n, static_cast<uint8_t>(zero));
            cases::QuantizedRows rows_of_x = cases::quantized_rows(w.weight, rows, random);
            std::ranges::fill(rows_of_x.data, static_cast<int8_t>(x));
            std::ranges::fill(rows_of_x.scales, 1.0f);
            std::ranges::fill(rows_of_x.sums, x * k);
            std::vector<Isa> isas = cases::vector_isas();
            isas.push_back(Isa::ref);
            for (Isa isa : isas) {
              const std::vector<float> y = result(isa, c, product_of(w.weight, rows_of_x, rows));
              const auto stride = static_cast<int>(y.size()) / rows;
              for (int i = 0; i < rows * c.n; ++i)
                ASSERT_EQ(y[i / c.n * stride + i % c.n],
                          static_cast<float>(x * k * (largest - zero)))
                    << isa_name(isa) << " k " << k;
            }
          }
}

// One group of the largest numbers of formats with scales of 16 under the largest scales that files
// can have: the integer sum is below 2^24.
TEST_F(ScaledProductTest, TheLargestSumsOf16AreExact) {
  struct Kind {
    WeightFormat format;
    uint8_t number;
    int value, scale;
  };
  std::vector<Isa> isas = cases::vector_isas();
  isas.push_back(Isa::ref);
  for (const Kind& kind :
       {Kind{WeightFormat::q6_k, 0, -32, -128}, Kind{WeightFormat::q6_k, 63, 31, -128},
        Kind{WeightFormat::q3_k, 0, -4, -32}, Kind{WeightFormat::iq2_s, 2, 43, 31},
        Kind{WeightFormat::iq2_s, 5, -43, 31}, Kind{WeightFormat::iq1_m, 0, -9, 15}})
    for (const int x : {-127, 127})
      for (const int rows : {1, 8, 16}) {
        const ScaledCase c{kind.format, kGgufGroup, rows, kGgufGroup, 32};
        std::mt19937 random(1);
        const cases::ScaledMatrix w = cases::scaled_matrix(c, random);
        const std::vector<uint8_t> numbers(static_cast<size_t>(c.n * c.k), kind.number);
        cases::pack_numbers(View<const uint8_t>(numbers.data(), c.n, c.k), 0, w.weight);
        for (int panel = 0; panel < w.weight.panels(); ++panel) {
          auto& block = const_cast<ScalesOf16&>(
              w.weight.block_scales<ScalesOf16>(int64_t{panel} * kPanelN, 0));
          std::ranges::fill(block.d, float_to_f16(1));
          for (auto& of_half : block.scales)
            std::ranges::fill(of_half, static_cast<int8_t>(kind.scale));
        }
        cases::QuantizedRows rows_of_x = cases::quantized_rows(w.weight, rows, random);
        for (int row = 0; row < rows; ++row)
          std::fill_n(rows_of_x.data.data() + row * rows_of_x.stride, c.k, static_cast<int8_t>(x));
        std::ranges::fill(rows_of_x.scales, 1.0f);
        std::ranges::fill(rows_of_x.sums, x * c.k);
        const int sum = c.k * x * kind.value * kind.scale;
        ASSERT_LT(std::abs(sum), 1 << 24);
        const float unit = has_table(kind.format) ? number_table(kind.format).unit : 1;
        for (Isa isa : isas) {
          const std::vector<float> y = result(isa, c, product_of(w.weight, rows_of_x, rows));
          const auto stride = static_cast<int>(y.size()) / rows;
          for (int i = 0; i < rows * c.n; ++i)
            ASSERT_EQ(y[i / c.n * stride + i % c.n], static_cast<float>(sum) * unit)
                << isa_name(isa) << " " << name_of(c);
        }
      }
}

// The same for q5_k, whose sums AVX2 has in 16 bits at first. Scales are 63 and minima 0.
TEST_F(ScaledProductTest, TheLargestSumsOfFiveBitsAreExact) {
  for (const int x : {-127, 127})
    for (const int rows : {1, 9, 16}) {
      const ScaledCase c{WeightFormat::q5_k, kGgufGroup, rows, kGgufGroup, 32};
      std::mt19937 random(1);
      const cases::ScaledMatrix w = cases::scaled_matrix(c, random);
      std::memset(w.memory.data(), 255, w.weight.data_bytes());
      for (int panel = 0; panel < w.weight.panels(); ++panel) {
        auto& block =
            const_cast<Q4kScales&>(w.weight.block_scales<Q4kScales>(int64_t{panel} * kPanelN, 0));
        std::ranges::fill(block.d, float_to_f16(1));
        for (auto& of_group : block.scales) std::ranges::fill(of_group, uint8_t{63});
        for (auto& of_group : block.mins) std::ranges::fill(of_group, uint8_t{0});
      }
      cases::QuantizedRows rows_of_x = cases::quantized_rows(w.weight, rows, random);
      std::ranges::fill(rows_of_x.data, static_cast<int8_t>(x));
      std::ranges::fill(rows_of_x.scales, 1.0f);
      std::ranges::fill(rows_of_x.sums, x * c.k);
      std::vector<Isa> isas = cases::vector_isas();
      isas.push_back(Isa::ref);
      for (Isa isa : isas) {
        const std::vector<float> y = result(isa, c, product_of(w.weight, rows_of_x, rows));
        const auto stride = static_cast<int>(y.size()) / rows;
        for (int i = 0; i < rows * c.n; ++i)
          ASSERT_EQ(y[i / c.n * stride + i % c.n], static_cast<float>(c.k * x * 31 * 63))
              << isa_name(isa);
      }
    }
}

}  // namespace
}  // namespace hocket
