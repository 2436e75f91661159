// The operations that split rows among workers: norm, combine, quantized rows, row_stats.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <optional>

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

// The tree of one number, word by word: leaf(l) returns the sum of a leaf, nullopt if it is empty.
template <class T>
std::optional<float> tree(int begin, int size,
                          const std::function<std::optional<float>(int)>& leaf) {
  if (size == 1) {
    const auto sum = leaf(begin);
    return sum ? std::optional(to_float(from_float<T>(*sum))) : sum;
  }
  const auto left = tree<T>(begin, size / 2, leaf);
  const auto right = tree<T>(begin + size / 2, size / 2, leaf);
  if (!left) return right;
  if (!right) return left;
  return to_float(from_float<T>(*left + *right));
}

TEST(RowOpsTest, GroupsAreLeavesWhoseHalvesAndQuartersAreNodes) {
  EXPECT_EQ(combine_leaves(4, 1), (std::vector<int32_t>{0, 0, 0, 0}));
  EXPECT_EQ(combine_leaves(8, 4), (std::vector<int32_t>{0, 0, 1, 1, 2, 2, 3, 3}));
  EXPECT_EQ(combine_leaves(6, 3), (std::vector<int32_t>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(combine_leaves(12, 12), (std::vector<int32_t>{0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14}));
  EXPECT_EQ(combine_leaves(10, 10), (std::vector<int32_t>{0, 1, 2, 3, 4, 8, 9, 10, 11, 12}));
  EXPECT_TRUE(combine_leaves(0, 1).empty());
}

// The contract of combine_rows(), word by word: leaves ascending, and slots ascending in a leaf.
template <class T>
void expect_combined(int num_groups, Shared kind, float output_scale = 1) {
  std::mt19937 random(5);
  const int tokens = 40, k = 6, cols = 90, experts = 48;
  const std::vector<int32_t> leaves = combine_leaves(experts, num_groups);
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
      const auto leaf = [&](int l) {
        std::optional<float> sum;
        for (int s = t * k; s < (t + 1) * k; ++s)
          if (leaves[ids[s]] == l)
            sum = std::fma(weights[s], to_float(y[position[s] * cols + c]), sum.value_or(0));
        return sum;
      };
      float total = (*tree<T>(0, 64, leaf) + 0.0f) * output_scale;
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
                  .leaves = leaves,
                  .output_scale = output_scale,
                  .shared = kind == Shared::added ? View<const float>(shared.data(), tokens, cols)
                                                  : View<const float>(),
                  .residual = View<float>(residual.data(), tokens, cols)});
    ASSERT_EQ(std::memcmp(residual.data(), expected.data(), residual.size() * sizeof(float)), 0);
  });
}

TEST(RowOpsTest, CombineAddsTheTreeOfGroups) {
  for (int num_groups : {1, 2, 3, 8, 12, 16, 48}) {
    for (Shared shared : {Shared::none, Shared::added}) {
      expect_combined<Bf16>(num_groups, shared);
      expect_combined<float>(num_groups, shared);
      expect_combined<Bf16>(num_groups, shared, 2.5f);
      expect_combined<float>(num_groups, shared, 2.5f);
    }
  }
}

// Returns the node of each expert by its first leaf: the largest whose experts are on one rank.
// There are 16 leaves.
std::vector<int32_t> nodes_of(std::span<const int32_t> leaves, std::span<const int> ranks) {
  std::vector<int32_t> nodes(leaves.begin(), leaves.end());
  for (size_t e = 0; e < leaves.size(); ++e)
    for (int size = 2; size <= 16; size *= 2) {
      bool whole = true;
      for (size_t other = 0; other < leaves.size(); ++other)
        whole &= leaves[other] / size != leaves[e] / size || ranks[other] == ranks[e];
      if (whole) nodes[e] = leaves[e] / size * size;
    }
  return nodes;
}

using FloatRow = std::vector<float>;

// Rounds a row to int8 with a scale, and returns the numbers times the scale times the weight.
FloatRow through_int8(const FloatRow& row, float weight = 1) {
  float amax = 0;
  for (const float v : row) amax = std::max(amax, std::abs(v));
  const float scale = amax / 127 * weight;
  FloatRow rounded;
  for (const float v : row) rounded.push_back(std::nearbyint(v * (127 / amax)) * scale);
  return rounded;
}

FloatRow sum_of(const FloatRow& a, const FloatRow& b) {
  FloatRow sum;
  std::ranges::transform(a, b, std::back_inserter(sum), std::plus<>());
  return sum;
}

// The tree of rows, each sum rounded to int8; leaf(l) returns an empty row for an empty leaf.
FloatRow int8_tree(int begin, int size, const std::function<FloatRow(int)>& leaf) {
  if (size == 1) return leaf(begin);
  FloatRow left = int8_tree(begin, size / 2, leaf);
  FloatRow right = int8_tree(begin + size / 2, size / 2, leaf);
  if (left.empty() || right.empty()) return left.empty() ? right : left;
  return through_int8(sum_of(left, right));
}

template <class T>
void expect_int8_sums(int num_groups) {
  std::mt19937 random(8);
  const int tokens = 20, k = 6, cols = 90, experts = 16;
  const std::vector<int32_t> leaves = combine_leaves(experts, num_groups);
  std::vector<T> y;
  for (const float v : cases::random_row(tokens * k * cols, 1, random))
    y.push_back(from_float<T>(v));
  std::vector<int32_t> ids, position;
  for (int i = 0; i < tokens * k; ++i) {
    ids.push_back((i * 7 + i / k) % experts);
    position.push_back(i);
  }
  const auto weights = cases::random_row(tokens * k, 1, random);
  const auto shared = cases::random_row(tokens * cols, 1, random);
  std::vector<float> expected(tokens * cols, 3);
  for (int t = 0; t < tokens; ++t) {
    const FloatRow root = int8_tree(0, 16, [&](int l) {
      FloatRow sum;
      int slots = 0;
      for (int s = t * k; s < (t + 1) * k; ++s) {
        if (leaves[ids[s]] != l) continue;
        FloatRow row;
        for (int c = 0; c < cols; ++c) row.push_back(to_float(y[s * cols + c]));
        row = through_int8(row, weights[s]);
        sum = ++slots == 1 ? row : sum_of(sum, row);
      }
      return slots > 1 ? through_int8(sum) : sum;
    });
    for (int c = 0; c < cols; ++c)
      expected[t * cols + c] += (root[c] + 0.0f) * 2.5f + shared[t * cols + c];
  }
  on_every_backend([&](Backend& backend) {
    std::vector<float> residual(tokens * cols, 3);
    combine_rows(backend, {.y = MatrixView::of(View<T>(y.data(), tokens * k, cols)),
                           .ids = {ids.data(), tokens, k},
                           .position = {position.data(), tokens, k},
                           .weights = {weights.data(), tokens, k},
                           .leaves = leaves,
                           .output_scale = 2.5f,
                           .shared = {shared.data(), tokens, cols},
                           .residual = {residual.data(), tokens, cols},
                           .int8_sums = true});
    ASSERT_EQ(residual, expected);
  });
}

TEST(RowOpsTest, SumsInInt8AreRoundedAtEveryNode) {
  for (const int num_groups : {1, 2, 8, 16}) {
    expect_int8_sums<Bf16>(num_groups);
    expect_int8_sums<float>(num_groups);
  }
}

// The experts are on several ranks: ranks[g] has group g. The sums of each rank, added on the
// token's rank, must have the bits of one rank that sums all; so must the expert rows themselves,
// at any address. Sent: the type of rows that travel.
template <class T, class Sent = T>
void expect_parts_add_up(const std::vector<int>& ranks) {
  constexpr int kTokens = 40, kSlots = 5, kCols = 90, kExperts = 16;
  constexpr bool kInt8 = sizeof(Sent) == 1;
  constexpr DType kSent = kInt8 ? DType::int8 : dtype_of<T>;
  constexpr int64_t kSentCols = kInt8 ? quantized_columns(kCols) : kCols;
  const int num_groups = static_cast<int>(ranks.size());
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
  const std::vector<int32_t> leaves = combine_leaves(kExperts, num_groups);
  constexpr int kRanks = 3;
  std::vector<int> rank_of(kExperts), local_of(kExperts);
  std::array<std::vector<int32_t>, kRanks> leaves_on;  // by the number there
  for (int e = 0; e < kExperts; ++e) rank_of[e] = ranks[e / (kExperts / num_groups)];
  const std::vector<int32_t> nodes = nodes_of(leaves, rank_of);
  for (int e = 0; e < kExperts; ++e) {
    local_of[e] = static_cast<int>(leaves_on[rank_of[e]].size());
    leaves_on[rank_of[e]].push_back(leaves[e]);
  }

  // The ids that each rank gets, and the positions of its sums.
  std::array<std::vector<int32_t>, kRanks> local, first;
  std::vector<int32_t> node_of_slot;
  for (const int32_t id : ids) node_of_slot.push_back(nodes[id]);
  std::array<int, kRanks> num_parts = {};
  std::vector<std::pair<int, int>> part_of(kTokens * kSlots, {-1, -1});  // rank, part
  for (int t = 0; t < kTokens; ++t)
    for (int rank = 0; rank < kRanks; ++rank) {
      first[rank].push_back(num_parts[rank]);
      std::map<int, int> slot_of_node;  // ascending
      for (int i = t * kSlots; i < (t + 1) * kSlots; ++i) {
        const bool here = rank_of[ids[i]] == rank;
        local[rank].push_back(here ? local_of[ids[i]] : -1);
        if (here) slot_of_node[nodes[ids[i]]] = i;
      }
      for (const auto& [node, slot] : slot_of_node) part_of[slot] = {rank, num_parts[rank]++};
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
                           .leaves = leaves,
                           .shared = added,
                           .residual = {want.data(), kTokens, kCols},
                           .int8_sums = kInt8});

    std::array<std::vector<Sent>, kRanks> sums;
    for (int rank = 0; rank < kRanks; ++rank) {
      sums[rank].resize(num_parts[rank] * kSentCols);
      combine_partly(backend,
                     {.y = rows,
                      .ids = {local[rank].data(), kTokens, kSlots},
                      .position = positions,
                      .weights = all_weights,
                      .nodes = {node_of_slot.data(), kTokens, kSlots},
                      .first = first[rank],
                      .leaves = leaves_on[rank],
                      .out = {sums[rank].data(), kSent, num_parts[rank], kSentCols, kSentCols}});
    }
    std::vector<Sent> sent(kTokens * kSlots * kSentCols);
    if constexpr (kInt8)
      quantize_rows(backend, rows, {sent.data(), kSent, rows.rows, kSentCols, kSentCols});
    else
      sent = y;
    std::vector<const std::byte*> parts, slots;
    for (int i = 0; i < kTokens * kSlots; ++i) {
      const auto [rank, part] = part_of[i];
      parts.push_back(rank < 0 ? nullptr
                               : reinterpret_cast<const std::byte*>(&sums[rank][part * kSentCols]));
      slots.push_back(reinterpret_cast<const std::byte*>(&sent[position[i] * kSentCols]));
    }
    combine_placed(backend, {.dtype = kSent,
                             .rows = {parts.data(), kTokens, kSlots},
                             .ids = all_ids,
                             .leaves = leaves,
                             .shared = added,
                             .residual = {from_parts.data(), kTokens, kCols}});
    combine_placed(backend, {.dtype = kSent,
                             .rows = {slots.data(), kTokens, kSlots},
                             .ids = all_ids,
                             .weights = all_weights,
                             .leaves = leaves,
                             .shared = added,
                             .residual = {from_rows.data(), kTokens, kCols}});
    ASSERT_NE(want, before);
    ASSERT_EQ(from_parts, want);
    ASSERT_EQ(from_rows, want);
  });
}

TEST(RowOpsTest, SumsOfAnyPlacementAddUp) {
  const std::vector<int> placements[] = {
      {0, 1},
      {0, 0, 1, 1},
      {0, 0, 0, 1, 1, 1, 2, 2},
      {0, 1, 2, 0, 1, 2, 0, 1},
      {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2},
      {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2},
  };
  for (const std::vector<int>& ranks : placements) {
    expect_parts_add_up<Bf16>(ranks);
    expect_parts_add_up<float>(ranks);
    expect_parts_add_up<Bf16, int8_t>(ranks);
    expect_parts_add_up<float, int8_t>(ranks);
  }
}

}  // namespace
}  // namespace hocket
