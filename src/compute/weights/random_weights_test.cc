#include "compute/weights/random_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace hocket {
namespace {

std::vector<float> rows_of(uint64_t seed, const std::string& name, int64_t begin, int64_t rows,
                           int64_t cols) {
  std::vector<float> out(rows * cols);
  random_rows(seed, name, begin, {out.data(), rows, cols});
  return out;
}

struct Moments {
  double mean = 0, deviation = 0, kurtosis = 0;
};
Moments moments(const std::vector<float>& values) {
  Moments m;
  for (const float x : values) m.mean += x / values.size();
  double second = 0, fourth = 0;
  for (const float x : values) {
    const double square = (x - m.mean) * (x - m.mean);
    second += square / values.size();
    fourth += square * square / values.size();
  }
  m.deviation = std::sqrt(second);
  m.kurtosis = fourth / (second * second);
  return m;
}

TEST(RandomWeights, MatricesLookNormal) {
  const Moments m = moments(rows_of(1, "w.weight", 0, 300, 1000));
  EXPECT_NEAR(m.mean, 0, 0.0005);
  EXPECT_NEAR(m.deviation, 0.05, 0.0005);
  EXPECT_NEAR(m.kurtosis, 2.7, 0.05);  // kurtosis of a sum of four uniform numbers; 3 is normal
}

TEST(RandomWeights, NormsAreNearOne) {
  const Moments m = moments(rows_of(1, "model.layers.3.input_layernorm.weight", 0, 1, 4096));
  EXPECT_NEAR(m.mean, 1, 0.01);
  EXPECT_NEAR(m.deviation, 0.1, 0.01);
}

TEST(RandomWeights, AnyCutGivesTheSameNumbers) {
  const std::vector<float> whole = rows_of(5, "w", 0, 9, 131);
  for (int64_t row = 0; row < 9; ++row) {
    const std::vector<float> alone = rows_of(5, "w", row, 1, 131);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), whole.begin() + row * 131));
  }
}

TEST(RandomWeights, SeedNameAndRowDecide) {
  const std::vector<float> base = rows_of(5, "w", 0, 1, 256);
  const auto equal_numbers = [&](const std::vector<float>& other) {
    int equal = 0;
    for (size_t i = 0; i < base.size(); ++i) equal += base[i] == other[i];
    return equal;
  };
  EXPECT_EQ(equal_numbers(rows_of(5, "w", 0, 1, 256)), 256);
  EXPECT_LT(equal_numbers(rows_of(6, "w", 0, 1, 256)), 4);
  EXPECT_LT(equal_numbers(rows_of(5, "v", 0, 1, 256)), 4);
  EXPECT_LT(equal_numbers(rows_of(5, "w", 1, 1, 256)), 4);
}

TEST(RandomWeights, NeighboursAreNotCorrelated) {
  const std::vector<float> w = rows_of(3, "w", 0, 200, 512);
  double along_row = 0, along_column = 0;
  for (int row = 0; row < 199; ++row) {
    for (int col = 0; col < 511; ++col) {
      along_row += w[row * 512 + col] * w[row * 512 + col + 1];
      along_column += w[row * 512 + col] * w[(row + 1) * 512 + col];
    }
  }
  const double variance = 0.05 * 0.05 * 199 * 511;
  EXPECT_LT(std::abs(along_row / variance), 0.015);
  EXPECT_LT(std::abs(along_column / variance), 0.015);
}

TEST(RandomWeights, FillsMuchPerSecond) {
  std::vector<float> out(8'000'000);
  const auto start = std::chrono::steady_clock::now();
  random_rows(1, "w", 0, {out.data(), 4000, 2000});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("random_rows: %.0f M elements/s in one thread\n", out.size() / seconds / 1e6);
  EXPECT_NE(out.front(), out.back());
}

}  // namespace
}  // namespace hocket
