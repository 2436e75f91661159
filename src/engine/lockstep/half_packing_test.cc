#include "engine/lockstep/half_packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "compute/forward/split.h"

namespace hocket {
namespace {

using Counts = HalfPacker::Counts;

// Packs answers of one row each.
int pack(HalfPacker& packer, const std::vector<int32_t>& keys, const HalfPacking& packing,
         Counts counts) {
  std::vector<PackedAnswer> answers;
  for (const int32_t of_row : keys) answers.push_back({.keys = of_row});
  return packer.pack(answers, packing, counts);
}

// Returns the cost of the first half beyond its share.
double excess(const std::vector<int32_t>& keys, const HalfPacking& packing, const auto& in_first) {
  double load = 0, all = 0;
  for (int i = 0; i < std::ssize(keys); ++i) {
    const double cost = keys[i] + packing.keys_per_row;
    all += cost;
    if (in_first(i)) load += cost;
  }
  return load - all * packing.share / kWholeShare;
}

double all_cost(const std::vector<int32_t>& keys, const HalfPacking& packing) {
  return std::accumulate(keys.begin(), keys.end(), 0.0) +
         packing.keys_per_row * static_cast<double>(keys.size());
}

// Tries all packings with `first_rows` rows in the first half (-1: any number), and returns the
// least excess.
double min_excess(const std::vector<int32_t>& keys, const HalfPacking& packing, int first_rows) {
  double least = 1e300;
  const auto rows = static_cast<unsigned>(keys.size());
  for (unsigned set = 1; set + 1 < 1U << rows; ++set) {
    if (first_rows >= 0 && std::popcount(set) != first_rows) continue;
    least = std::min(least,
                     std::abs(excess(keys, packing, [&](int i) { return (set >> i & 1) != 0; })));
  }
  return least;
}

// Makes lengths that are mostly short, a few very long.
std::vector<int32_t> lengths(int rows, std::mt19937& random) {
  std::lognormal_distribution<double> length(7, 1.2);
  std::vector<int32_t> keys(rows);
  for (int32_t& k : keys) k = 1 + static_cast<int32_t>(std::min(length(random), 100'000.0));
  return keys;
}

double excess(const HalfPacker& packer, const std::vector<int32_t>& keys,
              const HalfPacking& packing) {
  return excess(keys, packing, [&](int i) { return packer.in_first(i); });
}

TEST(HalfPacking, IsNearTheBestOfAllWays) {
  std::mt19937 random(1);
  HalfPacker packer;
  double lost_free = 0, lost_by_share = 0;
  constexpr int kTrials = 300;
  for (int i = 0; i < kTrials; ++i) {
    const int rows = 2 + static_cast<int>(random() % 10);
    const std::vector<int32_t> keys = lengths(rows, random);
    const HalfPacking packing{.share = 20 + static_cast<int>(random() % 25),
                              .keys_per_row = static_cast<double>(random() % 2000)};
    const double all = all_cost(keys, packing);
    pack(packer, keys, packing, Counts::free);
    const double free = std::abs(excess(packer, keys, packing));
    lost_free += (free - min_excess(keys, packing, -1)) / all;
    const int first = pack(packer, keys, packing, Counts::by_share);
    ASSERT_EQ(first, rows_by_share(rows, {.share = packing.share}));
    const HalfPacking keys_alone{.share = packing.share, .keys_per_row = 0};
    lost_by_share +=
        (std::abs(excess(packer, keys, keys_alone)) - min_excess(keys, keys_alone, first)) /
        all_cost(keys, keys_alone);
  }
  printf("lost against the best of all ways: %.2f %% free, %.2f %% by share\n",
         100 * lost_free / kTrials, 100 * lost_by_share / kTrials);
  EXPECT_LT(lost_free / kTrials, 0.01);
  EXPECT_LT(lost_by_share / kTrials, 0.01);
}

TEST(HalfPacking, EvensOutWhatPositionsLeaveUneven) {
  std::mt19937 random(2);
  HalfPacker packer;
  for (const int rows : {16, 64, 512}) {
    double packed = 0, by_position = 0;
    for (int i = 0; i < 50; ++i) {
      const std::vector<int32_t> keys = lengths(rows, random);
      const HalfPacking packing{.keys_per_row = 100};
      pack(packer, keys, packing, Counts::free);
      const double all = all_cost(keys, packing);
      packed += std::abs(excess(packer, keys, packing)) / all / 50;
      by_position +=
          std::abs(excess(keys, packing, [&](int row) { return row < rows / 2; })) / all / 50;
    }
    printf("%d rows: %.2f %% of all too much by position, %.3f %% packed\n", rows,
           100 * by_position, 100 * packed);
    EXPECT_LT(packed, 0.002 + (rows < 64 ? 0.02 : 0));
    EXPECT_LT(packed, by_position);
  }
}

TEST(HalfPacking, KeepsTheRulesWhateverComes) {
  std::mt19937 random(3);
  HalfPacker packer, again;
  for (int i = 0; i < 3000; ++i) {
    const int rows = static_cast<int>(random() % 70);
    std::vector<int32_t> keys = lengths(rows, random);
    if (i % 5 == 0) std::ranges::fill(keys, 300);
    const int tiles[] = {1, 1, 4, 16};
    const HalfPacking packing{.share = 1 + static_cast<int>(random() % 63),
                              .row_tile = tiles[random() % 4],
                              .keys_per_row = i % 7 == 0 ? 0 : 1e4 / (1 + random() % 100)};
    for (const Counts counts : {Counts::free, Counts::by_share}) {
      const int first = pack(packer, keys, packing, counts);
      int counted = 0;
      for (int row = 0; row < rows; ++row) counted += packer.in_first(row);
      ASSERT_EQ(first, counted);
      if (rows < 2) {
        ASSERT_EQ(first, rows);
        continue;
      }
      ASSERT_GE(first, 1);
      ASSERT_LT(first, rows);
      ASSERT_EQ(packing.row_tile < rows ? first % packing.row_tile : 0, 0);
      ASSERT_EQ(pack(again, keys, packing, counts), first);
      for (int row = 0; row < rows; ++row) ASSERT_EQ(again.in_first(row), packer.in_first(row));
    }
  }
}

TEST(HalfPacking, RowsOfOneLengthAreSharedOut) {
  HalfPacker packer;
  const std::vector<int32_t> keys(64, 1000);
  EXPECT_EQ(pack(packer, keys, {}, Counts::free), 32);
  EXPECT_EQ(pack(packer, keys, {.share = 24}, Counts::free), 24);
  EXPECT_EQ(pack(packer, keys, {.share = 30, .row_tile = 16}, Counts::free), 32);
}

// A row of very many keys stands alone if keys dominate the cost, and with many others if rows do.
TEST(HalfPacking, AGiantIsWeighedAgainstRows) {
  HalfPacker packer;
  std::vector<int32_t> keys(33, 1000);
  keys[7] = 32'000;
  EXPECT_EQ(pack(packer, keys, {.keys_per_row = 1}, Counts::free), 1);
  EXPECT_TRUE(packer.in_first(7));
  const int first = pack(packer, keys, {.keys_per_row = 1e6}, Counts::free);
  EXPECT_GE(first, 16);
  EXPECT_LE(first, 17);
}

// An answer's rows are in one half, whatever their number, and the halves are nearly even.
TEST(HalfPacking, AnswersOfSeveralRowsStayWhole) {
  std::mt19937 random(4);
  HalfPacker packer;
  double off = 0;
  constexpr int kTrials = 300;
  for (int i = 0; i < kTrials; ++i) {
    const int num_answers = 1 + static_cast<int>(random() % 40);
    const std::vector<int32_t> keys = lengths(num_answers, random);
    std::vector<PackedAnswer> answers;
    double all = 0;
    int num_rows = 0;
    const HalfPacking packing{.share = 20 + static_cast<int>(random() % 25), .keys_per_row = 1000};
    for (const int32_t of_row : keys) {
      const int rows = 1 + static_cast<int>(random() % (random() % 2 == 0 ? 9 : 1));
      answers.push_back({.rows = rows, .keys = int64_t{rows} * of_row});
      all += rows * (of_row + packing.keys_per_row);
      num_rows += rows;
    }
    for (const Counts counts : {Counts::free, Counts::by_share}) {
      const int first = packer.pack(answers, packing, counts);
      int counted = 0, num_first = 0;
      double load = 0;
      for (int j = 0; j < num_answers; ++j) {
        if (!packer.in_first(j)) continue;
        const PackedAnswer& answer = answers[static_cast<size_t>(j)];
        counted += answer.rows, ++num_first;
        load += static_cast<double>(answer.keys) + answer.rows * packing.keys_per_row;
      }
      ASSERT_EQ(first, counted);
      if (num_answers == 1) {
        ASSERT_EQ(first, num_rows);
        continue;
      }
      if (counts == Counts::by_share) {
        ASSERT_NEAR(first, rows_by_share(num_rows, {.share = packing.share}), 8);
        continue;
      }
      ASSERT_GE(num_first, 1);
      ASSERT_LT(num_first, num_answers);
      if (num_answers > 8) off += std::abs(load / all - packing.share / 64.0) / kTrials;
    }
  }
  printf("%.2f %% of all too much\n", 100 * off);
  EXPECT_LT(off, 0.02);
}

}  // namespace
}  // namespace hocket
