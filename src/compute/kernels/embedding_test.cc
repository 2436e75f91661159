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

TEST(Embedding, RowsOfThePackedTable) {
  expect_rows_of_the_table<Bf16>();
  expect_rows_of_the_table<float>();
}

}  // namespace
}  // namespace hocket
