// The operations that split rows among workers: norm, combine, quantized rows, row_stats.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "compute/kernels/cases/row_cases.h"
#include "compute/kernels/combine.h"
#include "compute/kernels/norm.h"
#include "compute/kernels/quantized_rows.h"
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

// Quantizes rows and dequantizes them by index and by address, against the words of the contract.
template <class T>
void expect_quantized_and_back(int cols) {
  constexpr int kRows = 50, kPicked = 300;
  std::mt19937 random(9);
  std::vector<T> x;
  for (const float v : cases::random_row(kRows * cols, 3, random)) x.push_back(from_float<T>(v));
  x[cols] = from_float<T>(std::nanf(""));
  std::vector<float> expected;
  for (int r = 0; r < kRows; ++r) {
    float amax = 0;
    for (int i = 0; i < cols; ++i) amax = std::max(amax, std::abs(to_float(x[r * cols + i])));
    for (int i = 0; i < cols; ++i) {
      const float q = std::nearbyint(to_float(x[r * cols + i]) * (127 / amax));
      expected.push_back(to_float(from_float<T>(q * (amax / 127))));
    }
  }
  std::vector<int32_t> picked(kPicked);
  for (int32_t& r : picked) r = static_cast<int32_t>(random() % kRows);
  const int64_t bytes = quantized_columns(cols);
  SameBits<int8_t> same;
  on_every_backend([&](Backend& backend) {
    std::vector<int8_t> q(kRows * bytes, 77);
    const MatrixView quantized{q.data(), DType::int8, kRows, bytes, bytes};
    quantize_rows(backend, MatrixView::of(View<T>(x.data(), kRows, cols)), quantized);
    ASSERT_TRUE(same(q));
    std::vector<T> by_number(kPicked * cols), by_place(kPicked * cols);
    std::vector<const std::byte*> places;
    for (const int32_t r : picked)
      places.push_back(reinterpret_cast<const std::byte*>(q.data()) + r * bytes);
    dequantize_rows(backend, quantized, picked,
                    MatrixView::of(View<T>(by_number.data(), kPicked, cols)));
    dequantize_rows(backend, places, MatrixView::of(View<T>(by_place.data(), kPicked, cols)));
    ASSERT_EQ(std::memcmp(by_number.data(), by_place.data(), by_place.size() * sizeof(T)), 0);
    for (int i = 0; i < kPicked; ++i)
      for (int c = 0; c < cols; ++c) {
        const float got = to_float(by_number[i * cols + c]);
        if (picked[i] == 1) {
          ASSERT_TRUE(std::isnan(got));
        } else {
          ASSERT_EQ(got, expected[picked[i] * cols + c]) << cols << " columns, row " << picked[i];
        }
      }
  });
}

TEST(RowOpsTest, QuantizedRowsAndBack) {
  for (const int cols : {1, 27, 28, 29, 64, 100, 2048}) {
    expect_quantized_and_back<Bf16>(cols);
    expect_quantized_and_back<float>(cols);
  }
}

enum class Shared : uint8_t { none, added };

// The contract of combine_rows(), word by word: groups ascending, and slots ascending in a group.
template <class T>
void expect_combined(int num_groups, Shared kind, float output_scale = 1) {
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
      total = total * output_scale;
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
                  .output_scale = output_scale,
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
      expect_combined<Bf16>(num_groups, shared, 2.5f);
      expect_combined<float>(num_groups, shared, 2.5f);
    }
  }
}

// The experts are on two ranks. The sums of each rank, added on the token's rank, must have the
// bits of one rank that sums all; so must the expert rows themselves, at any address.
template <class T>
void expect_parts_add_up(int num_groups) {
  constexpr int kTokens = 40, kSlots = 4, kCols = 90, kExperts = 16, kHere = kExperts / 2;
  std::mt19937 random(6);
  std::vector<T> y;
  for (float v : cases::random_row(kTokens * kSlots * kCols, 1, random))
    y.push_back(from_float<T>(v));
  std::vector<int32_t> ids, position(kTokens * kSlots);
  for (int t = 0; t < kTokens; ++t) {
    std::vector<int32_t> all(kExperts);
    for (int e = 0; e < kExperts; ++e) all[e] = e;
    std::ranges::shuffle(all, random);
    ids.insert(ids.end(), all.begin(), all.begin() + kSlots);
  }
  for (int i = 0; i < kTokens * kSlots; ++i) position[i] = i;
  std::ranges::shuffle(position, random);
  const auto weights = cases::random_row(kTokens * kSlots, 1, random);
  const auto before = cases::random_row(kTokens * kCols, 1, random);
  const auto shared = cases::random_row(kTokens * kCols, 1, random);
  const int group_size = kExperts / num_groups;

  // The ids that each rank gets, and the positions of its sums.
  std::array<std::vector<int32_t>, 2> local, first;
  std::array<int, 2> num_parts = {};
  std::vector<std::pair<int, int>> part_of(kTokens * kSlots, {-1, -1});  // rank, part
  for (int t = 0; t < kTokens; ++t)
    for (int rank = 0; rank < 2; ++rank) {
      first[rank].push_back(num_parts[rank]);
      std::map<int, int> slot_of_group;  // ascending
      for (int i = t * kSlots; i < (t + 1) * kSlots; ++i) {
        local[rank].push_back(ids[i] / kHere == rank ? ids[i] % kHere : -1);
        if (ids[i] / kHere == rank) slot_of_group[ids[i] / group_size] = i;
      }
      for (const auto& [group, slot] : slot_of_group) part_of[slot] = {rank, num_parts[rank]++};
    }

  on_every_backend([&](Backend& backend) {
    const View<const int32_t> positions(position.data(), kTokens, kSlots);
    const View<const int32_t> all_ids(ids.data(), kTokens, kSlots);
    const View<const float> all_weights(weights.data(), kTokens, kSlots);
    const View<const float> added(shared.data(), kTokens, kCols);
    const MatrixView rows = MatrixView::of(View<T>(y.data(), kTokens * kSlots, kCols));
    std::vector<float> want = before, from_parts = before, from_rows = before;
    combine_rows(backend, {.y = rows,
                           .ids = all_ids,
                           .position = positions,
                           .weights = all_weights,
                           .num_experts = kExperts,
                           .num_groups = num_groups,
                           .shared = added,
                           .residual = {want.data(), kTokens, kCols}});

    std::array<std::vector<T>, 2> sums;
    for (int rank = 0; rank < 2; ++rank) {
      sums[rank].resize(int64_t{num_parts[rank]} * kCols);
      combine_partly(backend,
                     {.y = rows,
                      .ids = {local[rank].data(), kTokens, kSlots},
                      .position = positions,
                      .weights = all_weights,
                      .first = first[rank],
                      .group_size = group_size,
                      .out = MatrixView::of(View<T>(sums[rank].data(), num_parts[rank], kCols))});
    }
    std::vector<const std::byte*> parts, slots;
    for (int i = 0; i < kTokens * kSlots; ++i) {
      const auto [rank, part] = part_of[i];
      parts.push_back(rank < 0 ? nullptr
                               : reinterpret_cast<const std::byte*>(&sums[rank][part * kCols]));
      slots.push_back(reinterpret_cast<const std::byte*>(&y[position[i] * kCols]));
    }
    combine_placed(backend, {.dtype = dtype_of<T>,
                             .rows = {parts.data(), kTokens, kSlots},
                             .ids = all_ids,
                             .group_size = group_size,
                             .shared = added,
                             .residual = {from_parts.data(), kTokens, kCols}});
    combine_placed(backend, {.dtype = dtype_of<T>,
                             .rows = {slots.data(), kTokens, kSlots},
                             .ids = all_ids,
                             .weights = all_weights,
                             .group_size = group_size,
                             .shared = added,
                             .residual = {from_rows.data(), kTokens, kCols}});
    ASSERT_NE(want, before);
    ASSERT_EQ(from_parts, want);
    ASSERT_EQ(from_rows, want);
  });
}

TEST(RowOpsTest, PartsOfTwoRanksAddUp) {
  for (int num_groups : {2, 8, 16}) {
    expect_parts_add_up<Bf16>(num_groups);
    expect_parts_add_up<float>(num_groups);
  }
}

}  // namespace
}  // namespace hocket
