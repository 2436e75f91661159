#include "compute/kernels/embedding.h"

#include <gtest/gtest.h>

#include "compute/kernels/cases/linear_cases.h"

namespace hocket {
namespace {

template <class T>
void expect_rows_of_the_table() {
  std::mt19937 random(3);
  const auto table = cases::packed_matrix<T>(50, 71, cases::Values::heavy_tails, random);
  WorkerPool workers({2, {}, 1000});
  Backend backend = *Backend::create(Isa::ref, workers, 64);
  const std::vector<TokenId> ids = {TokenId{49}, TokenId{0}, TokenId{17}, TokenId{17}};
  std::vector<float> out(4 * 80, -1.0f);
  embed(backend, ids, table.weight, View<float>(out.data(), 4, 71, 80));
  for (int row = 0; row < 4; ++row)
    for (int k = 0; k < 80; ++k)
      EXPECT_EQ(out[row * 80 + k], k < 71 ? to_float(table.rows[value(ids[row]) * 71 + k]) : -1.0f)
          << row << ", " << k;
}

TEST(Embedding, RowsOfNumbersUnderScales) {
  constexpr int kRows = 50, kWidth = 72, kGroup = 32, kGroups = 3;
  std::vector<uint8_t> numbers(kRows * kWidth);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint8_t>(i * 37 % 251);
  PackedWeight table{.format = WeightFormat::int8, .n = kRows, .k = kWidth, .group = kGroup};
  ASSERT_EQ(table.groups(), kGroups);
  std::vector<uint8_t> packed(table.data_bytes()), zeros(table.zero_bytes());
  std::vector<std::byte> scales(table.scale_bytes());
  pack_int8_rows({numbers.data(), kRows, kWidth}, 0, packed.data());
  table.data = packed.data(), table.scales = scales.data(), table.zeros = zeros.data();
  const auto scale = [](int row, int group) { return 0.25f * static_cast<float>(row + group + 1); };
  for (int row = 0; row < kRows; ++row)
    for (int group = 0; group < kGroups; ++group) {
      const int64_t at = table.scale_index(row, group);
      store_scale(table.format, scale(row, group), scales.data(), at);
      zeros[at] = static_cast<uint8_t>(100 + group);
    }
  WorkerPool workers({2, {}, 1000});
  Backend backend = *Backend::create(Isa::ref, workers, 64);
  const std::vector<TokenId> ids = {TokenId{49}, TokenId{0}, TokenId{17}};
  std::vector<float> out(3 * kWidth);
  embed(backend, ids, table, View<float>(out.data(), 3, kWidth));
  for (int r = 0; r < 3; ++r)
    for (int k = 0; k < kWidth; ++k) {
      const int row = value(ids[r]), group = k / kGroup;
      EXPECT_EQ(out[r * kWidth + k],
                static_cast<float>(numbers[row * kWidth + k] - (100 + group)) * scale(row, group));
    }
}

TEST(Embedding, RowsOfThePackedTable) {
  expect_rows_of_the_table<Bf16>();
  expect_rows_of_the_table<float>();
}

}  // namespace
}  // namespace hocket
