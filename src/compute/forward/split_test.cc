#include "compute/forward/split.h"

#include <gtest/gtest.h>

#include "compute/forward/once.h"

namespace hocket {
namespace {

constexpr KvShape kShape{.num_heads = 2, .key_dim = 32, .value_dim = 32};

ForwardBatch batch_of(std::initializer_list<std::pair<int, int>> rows_and_positions) {
  ForwardBatch batch;
  for (const auto& [rows, position] : rows_and_positions) {
    batch.sequences.push_back(
        {.row_begin = batch.num_rows(), .num_rows = rows, .first_position = position});
    for (int i = 0; i < rows; ++i) {
      batch.ids.push_back(TokenId{i});
      batch.positions.push_back(position + i);
      batch.slots.push_back({PageId{0}, i});
    }
  }
  return batch;
}

TEST(Split, OneHalfTakesAllRows) {
  const ForwardBatch batch = batch_of({{5, 0}, {1, 40}});
  std::array<Half, 1> halves;
  split_batch(batch, even_split(batch), 4, kShape, halves);
  EXPECT_EQ(halves[0].rows.count, 6);
  EXPECT_EQ(halves[0].attention.sequences.size(), 2u);
}

TEST(Split, ASequenceOnTheCutBecomesTwoNeighbouringRanges) {
  //  rows   |0 1 2 3 4|5 6 7 8 9 10|      cut at 6
  const ForwardBatch batch = batch_of({{5, 0}, {6, 100}});
  std::array<Half, 2> halves;
  split_batch(batch, {.first_rows = 6}, 4, kShape, halves);
  ASSERT_EQ(halves[0].attention.sequences.size(), 2u);
  EXPECT_EQ(halves[0].attention.sequences[1].row_begin, 5);
  EXPECT_EQ(halves[0].attention.sequences[1].num_rows, 1);
  EXPECT_EQ(halves[0].attention.sequences[1].first_position, 100);
  ASSERT_EQ(halves[1].attention.sequences.size(), 1u);
  EXPECT_EQ(halves[1].attention.sequences[0].row_begin, 0);
  EXPECT_EQ(halves[1].attention.sequences[0].num_rows, 5);
  EXPECT_EQ(halves[1].attention.sequences[0].first_position, 101);
  EXPECT_EQ(halves[1].slots.size(), 5u);
}

TEST(Split, EveryCutKeepsEveryRowOnce) {
  const ForwardBatch batch = batch_of({{1, 7}, {4, 0}, {1, 3}, {9, 32}, {1, 0}});
  for (int cut = 0; cut <= batch.num_rows(); ++cut) {
    std::array<Half, 2> halves;
    split_batch(batch, {.first_rows = cut}, 4, kShape, halves);
    std::vector<int> positions;
    for (const Half& half : halves)
      for (const AttentionSequence& s : half.attention.sequences)
        for (int i = 0; i < s.num_rows; ++i) positions.push_back(s.first_position + i);
    EXPECT_EQ(positions, batch.positions) << cut;
  }
}

TEST(Once, IsSetOnceAndTakenOnce) {
  Once<int> field;
  field.set(3);
  EXPECT_DEATH(field.set(4), "CHECK failed");
  EXPECT_EQ(field.take(), 3);
  EXPECT_TRUE(field.empty());
  EXPECT_DEATH(field.take(), "CHECK failed");
}

}  // namespace
}  // namespace hocket
