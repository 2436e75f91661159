// The operations that split rows among workers: norm, combine, row_stats.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compute/kernels/cases/row_cases.h"
#include "compute/kernels/combine.h"
#include "compute/kernels/norm.h"
#include "compute/kernels/row_stats.h"

namespace hocket {
namespace {

using cases::on_every_backend;
using cases::SameBits;

TEST(RowOpsTest, NormOfRowsWithGaps) {
  std::mt19937 random(1);
  const int rows = 100, n = 300, stride = 320;
  const auto x = cases::random_row(rows * stride, 1, random), w = cases::random_row(n, 1, random);
  SameBits<Bf16> same;
  on_every_backend([&](Backend& backend) {
    std::vector<Bf16> y(rows * stride);
    rms_norm(backend, View<const float>(x.data(), rows, n, stride), w, 1e-5f,
             MatrixView::of(View<Bf16>(y.data(), rows, n, stride)));
    for (int r = 0; r < rows; ++r)
      for (int i = n; i < stride; ++i) ASSERT_EQ(y[r * stride + i].bits, 0);
    ASSERT_NE(y[(rows - 1) * stride].bits, 0);
    ASSERT_TRUE(same(y));
  });
}

TEST(RowOpsTest, StatsAndExpOfEveryRow) {
  std::mt19937 random(3);
  const int rows = 9, n = 5000;
  auto logits = cases::random_row(rows * n, 5, random);
  logits[4 * n + 77] = std::nanf("");
  SameBits<float> same;
  on_every_backend([&](Backend& backend) {
    std::vector<RowStats> stats(rows);
    row_stats(backend, View<const float>(logits.data(), rows, n), stats);
    std::vector<float> got;
    for (int r = 0; r < rows; ++r) {
      ASSERT_EQ(stats[r].finite, r != 4);
      if (r == 4) continue;
      std::vector<float> p(n);
      exp_row(backend, {&logits[r * n], n}, stats[r].max, p);
      double sum = 0;
      for (float v : p) sum += v;
      ASSERT_NEAR(std::log(sum) + stats[r].max, stats[r].logsumexp, 1e-5);
      ASSERT_EQ(p[stats[r].argmax], 1.0f);
      got.insert(got.end(), {stats[r].max, stats[r].logsumexp, p[0], p[n - 1]});
    }
    ASSERT_TRUE(same(got));
  });
}

TEST(RowOpsTest, GatherRows) {
  std::mt19937 random(4);
  const int cols = 100, stride = 128;
  const auto x = cases::random_row(50 * stride, 1, random);
  std::vector<int32_t> rows(400);
  for (int32_t& r : rows) r = static_cast<int32_t>(random() % 50);
  on_every_backend([&](Backend& backend) {
    std::vector<float> y(400 * cols);
    gather_rows(backend,
                MatrixView::of(View<float>(const_cast<float*>(x.data()), 50, cols, stride)), rows,
                MatrixView::of(View<float>(y.data(), 400, cols)));
    for (int i = 0; i < 400; ++i)
      ASSERT_EQ(std::memcmp(&y[i * cols], &x[rows[i] * stride], cols * sizeof(float)), 0);
  });
}

enum class Shared : uint8_t { none, added };

// The contract of combine_rows() word by word: groups ascending, slots ascending inside.
template <class T>
void expect_combined(int num_groups, Shared kind) {
  std::mt19937 random(5);
  const int tokens = 40, k = 4, cols = 90, experts = 16;
  const auto numbers = cases::random_row(tokens * k * cols, 1, random);
  std::vector<T> y;
  for (float v : numbers) y.push_back(from_float<T>(v));
  std::vector<int32_t> ids, position(tokens * k);
  for (int t = 0; t < tokens; ++t) {
    std::vector<int32_t> all(experts);
    for (int e = 0; e < experts; ++e) all[e] = e;
    std::ranges::shuffle(all, random);
    ids.insert(ids.end(), all.begin(), all.begin() + k);
  }
  for (int i = 0; i < tokens * k; ++i) position[i] = i;
  std::ranges::shuffle(position, random);
  const auto weights = cases::random_row(tokens * k, 1, random);
  const auto before = cases::random_row(tokens * cols, 1, random);
  const auto shared = cases::random_row(tokens * cols, 1, random);
  std::vector<float> expected = before;
  for (int t = 0; t < tokens; ++t) {
    for (int c = 0; c < cols; ++c) {
      float total = 0;
      for (int g = 0; g < num_groups; ++g) {
        float sum = 0;
        for (int s = t * k; s < (t + 1) * k; ++s)
          if (ids[s] / (experts / num_groups) == g)
            sum = std::fma(weights[s], to_float(y[position[s] * cols + c]), sum);
        total = total + to_float(from_float<T>(sum));
      }
      if (kind == Shared::added) total = total + shared[t * cols + c];
      expected[t * cols + c] = before[t * cols + c] + total;
    }
  }
  on_every_backend([&](Backend& backend) {
    std::vector<float> residual = before;
    combine_rows(backend,
                 {.y = MatrixView::of(View<T>(y.data(), tokens * k, cols)),
                  .ids = View<const int32_t>(ids.data(), tokens, k),
                  .position = View<const int32_t>(position.data(), tokens, k),
                  .weights = View<const float>(weights.data(), tokens, k),
                  .num_experts = experts,
                  .num_groups = num_groups,
                  .shared = kind == Shared::added ? View<const float>(shared.data(), tokens, cols)
                                                  : View<const float>(),
                  .residual = View<float>(residual.data(), tokens, cols)});
    ASSERT_EQ(std::memcmp(residual.data(), expected.data(), residual.size() * sizeof(float)), 0);
  });
}

TEST(RowOpsTest, CombineInGroups) {
  for (int num_groups : {1, 2, 8, 16}) {
    for (Shared shared : {Shared::none, Shared::added}) {
      expect_combined<Bf16>(num_groups, shared);
      expect_combined<float>(num_groups, shared);
    }
  }
}

}  // namespace
}  // namespace hocket
