#include "compute/forward/split.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "compute/forward/set_once.h"

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
  split_batch(batch, split_for(batch, {}), {4, kShape}, nullptr, halves);
  EXPECT_EQ(halves[0].rows.count, 6);
  EXPECT_EQ(halves[0].attention.sequences.size(), 2u);
}

TEST(Split, ASequenceOnTheCutBecomesTwoNeighbouringRanges) {
  //  rows   |0 1 2 3 4|5 6 7 8 9 10|      cut at 6
  const ForwardBatch batch = batch_of({{5, 0}, {6, 100}});
  std::array<Half, 2> halves;
  split_batch(batch, {.first_rows = 6}, {4, kShape}, nullptr, halves);
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
    split_batch(batch, {.first_rows = cut}, {4, kShape}, nullptr, halves);
    std::vector<int> positions;
    for (const Half& half : halves)
      for (const AttentionSequence& s : half.attention.sequences)
        for (int i = 0; i < s.num_rows; ++i) positions.push_back(s.first_position + i);
    EXPECT_EQ(positions, batch.positions) << cut;
  }
}

ForwardBatch prompts_of(const std::vector<int>& lengths) {
  ForwardBatch batch;
  batch.mode = ForwardMode::extend;
  for (const int rows : lengths) {
    batch.sequences.push_back({.row_begin = batch.num_rows(), .num_rows = rows});
    batch.ids.resize(batch.ids.size() + rows);
  }
  return batch;
}

int cut_of(const std::vector<int>& lengths, const SplitOptions& options = {}) {
  return split_for(prompts_of(lengths), options).first_rows;
}

// Returns the tokens of the first child by the rule as SGLang wrote it, for even halves.
int two_chunk_rule(const std::vector<int>& lengths) {
  int all = 0;
  for (const int length : lengths) all += length;
  int border = 0, best = all + 1, left = 0;
  for (size_t i = 1; i < lengths.size(); ++i) {
    left += lengths[i - 1];
    const int difference = std::abs(left - (all - left));
    if (difference > best) break;
    best = difference;
    border = left;
  }
  if (border >= 0.48 * all && border <= (1 - 0.48) * all) return border;
  int sum = 0, index = 0;
  for (; index < std::ssize(lengths); ++index)
    if ((sum += lengths[index]) > all / 2) break;
  return index + 1 > all / 2 ? border : all / 2;
}

TEST(SplitFor, CutsPromptsWhereTheTableSays) {
  const struct {
    std::vector<int> lengths;
    int cut;
  } cases[] = {
      {{50, 50, 50, 50}, 100},  // a border in the middle
      {{48, 52}, 48},           // or near it
      {{52, 48}, 52},
      {{47, 53}, 50},  // too far: a sequence is cut
      {{100, 2000}, 1050},
      {{2000, 100}, 1050},
      {{4096}, 2048},         // one long prompt
      {{10, 20, 10}, 20},     // the later of two equal borders, which is too far here
      {{40, 30, 5, 25}, 50},  // the first worse border ends the search
      {{2, 3}, 2},            // the middle is a border, though no good one
      {{1, 2}, 1},
      {{1, 1, 1}, 2},  // no cut is better than a border
      {{1, 1}, 1},
      {{2}, 1},
      {{3}, 1},
      {{1}, 1},  // nothing to divide
      {{}, 0},
  };
  for (const auto& one : cases)
    EXPECT_EQ(cut_of(one.lengths), one.cut) << ::testing::PrintToString(one.lengths);
}

TEST(SplitFor, IsTheTwoChunkRuleForAHalf) {
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<int> lengths(1 + random() % 6);
    const int most = i % 2 == 0 ? 8 : 3000;
    for (int& length : lengths) length = 1 + static_cast<int>(random() % most);
    const std::vector<int>& l = lengths;
    if (l == std::vector{1}) continue;  // its only row is in no half there
    EXPECT_EQ(cut_of(l), two_chunk_rule(l)) << ::testing::PrintToString(l);
  }
}

TEST(SplitFor, NeverLeavesAHalfEmptyAndIsAsNearAsTheRuleAllows) {
  std::mt19937 random(2);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<int> lengths(1 + random() % 5);
    for (int& length : lengths) length = 1 + static_cast<int>(random() % (i % 3 == 0 ? 10 : 700));
    const int tiles[] = {1, 4, 16};
    const SplitOptions options{.share = 16 + static_cast<int>(random() % 33),
                               .row_tile = tiles[random() % 3],
                               .cut_threshold = 0.3 + 0.05 * static_cast<double>(random() % 5)};
    const ForwardBatch batch = prompts_of(lengths);
    const int rows = batch.num_rows(), cut = split_for(batch, options).first_rows;
    if (rows < 2) continue;
    SCOPED_TRACE(fmt::format("{} share {} tile {}", ::testing::PrintToString(lengths),
                             options.share, options.row_tile));
    ASSERT_GT(cut, 0);
    ASSERT_LT(cut, rows);
    const double off = std::abs(cut - rows * options.share / 64.0);
    bool at_border = false;
    for (const AttentionSequence& s : batch.sequences) at_border |= s.row_begin == cut;
    const double for_border = (0.5 - options.cut_threshold) * rows;
    const double for_tile = options.row_tile < rows ? 0.5 * options.row_tile + 1 : 1;
    // In very small batches, sequences of one row before the cut make the nearest border the best
    // cut.
    const bool small = rows <= 2 * options.row_tile + 4;
    EXPECT_LE(small ? 0 : off, std::max(at_border ? for_border : 0, for_tile));
    EXPECT_EQ(at_border || options.row_tile >= rows ? 0 : cut % options.row_tile, 0);
  }
}

TEST(SplitFor, AThresholdOfZeroCutsNoSequence) {
  const SplitOptions options{.cut_threshold = 0};
  EXPECT_EQ(cut_of({100, 2000}, options), 100);
  EXPECT_EQ(cut_of({30, 10, 60}, options), 40);
  EXPECT_EQ(cut_of({500}, options), 500);
}

TEST(SplitFor, SharesAndTiles) {
  EXPECT_EQ(cut_of({1000}, {.share = 24}), 375);
  EXPECT_EQ(cut_of({1000}, {.share = 24, .row_tile = 16}), 368);
  // The lower of two equal multiples.
  EXPECT_EQ(cut_of({1000}, {.share = 32, .row_tile = 16}), 496);
  EXPECT_EQ(cut_of({20}, {.row_tile = 16}), 16);
  EXPECT_EQ(cut_of({16}, {.row_tile = 16}), 8);  // no multiple leaves both halves some rows
  EXPECT_EQ(cut_of({100, 300}, {.share = 16, .row_tile = 16}), 100);  // a border needs no tile
}

TEST(SplitFor, AnswersAreCutByRowsOrAsTheyWerePacked) {
  ForwardBatch batch = prompts_of(std::vector<int>(9, 1));
  batch.mode = ForwardMode::decode;
  EXPECT_EQ(split_for(batch, {}).first_rows, 4);
  EXPECT_EQ(split_for(batch, {.share = 48}).first_rows, 6);
  EXPECT_EQ(split_for(batch, {.row_tile = 8}).first_rows, 8);
  EXPECT_EQ(split_for(batch, {.share = 1}).first_rows, 1);
  EXPECT_EQ(split_for(batch, {.share = 63}).first_rows, 8);
  batch.half_borders = {.first = 2, .last = 2};
  EXPECT_EQ(split_for(batch, {}).first_rows, 2);
}

TEST(SetOnce, IsSetOnceAndTakenOnce) {
  SetOnce<int> field;
  field.set(3);
  EXPECT_DEATH(field.set(4), "CHECK failed");
  EXPECT_EQ(field.take(), 3);
  EXPECT_TRUE(field.empty());
  EXPECT_DEATH(field.take(), "CHECK failed");
}

}  // namespace
}  // namespace hocket
