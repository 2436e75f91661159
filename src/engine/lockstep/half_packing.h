// Distributes answers over two halves so that both take the same time: each row has a fixed cost
// and a cost per key that it reads. The rows of an answer, its drafts and forced tokens included,
// stay together. Prompts are not packed but cut (compute/forward/split.h).
// Source: docs/contracts/overlap.md, "Halves".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/overlap/plan.h"

namespace hocket {

// The options of packing for a step in two halves.
struct HalfPacking {
  int share = kEvenShare;  // share of the first half, in units of 1 / kWholeShare
  int row_tile = 1;  // the first half has a multiple of it in rows, as nearly as answers allow
  // The fixed cost of a row, in keys (engine/plan/stage_estimate.h, keys_per_row()).
  double keys_per_row = 4096;
};

// An answer's rows in the step.
struct PackedAnswer {
  int rows = 1;      // 1 .. kMaxRows
  int64_t keys = 0;  // sum of the keys that each of them reads
  static constexpr int kMaxRows = 63;
};

// Deals out the most expensive answer first, each to the half that finishes it sooner; then changes
// answers between halves, the best change first, while that evens them out. Deterministic; O(n log
// n); allocates nothing up to the reserved number of answers.
class HalfPacker {
 public:
  enum class Counts : uint8_t {
    free,      // a half may have fewer rows if they have more keys
    by_share,  // rows by share alone, keys as evenly as that allows
  };
  void reserve(int max_answers);
  // Returns the number of rows in the first half. If counts are free, two or more answers leave no
  // half without one. A single answer is in the first half.
  int pack(std::span<const PackedAnswer> answers, const HalfPacking& packing, Counts counts);
  // True if the last pack() put the answer into the first half.
  bool in_first(int answer) const { return first_[static_cast<size_t>(answer)] != 0; }

 private:
  // A change: one answer leaves the half with more cost, and one may move to it.
  struct Change {
    int leaves = -1, comes = -1;
    double left_over = 0;  // excess of that half after the change
  };
  static constexpr int kAnyRows = 0;

  double cost(int answer) const { return costs_[static_cast<size_t>(answer)]; }
  int rows(int answer) const { return answers_[static_cast<size_t>(answer)].rows; }
  double excess() const { return load_ - share_ * all_; }
  bool may_leave(bool from_first) const {
    return (from_first ? num_first_ : static_cast<int>(answers_.size()) - num_first_) > 1;
  }
  void put(int answer, bool first);
  void assign_answers(int max_first, int max_second);
  void round_to(int first_rows);
  void even_out(Counts counts);
  Change best_change(bool from_first, double excess, Counts counts) const;
  void consider_changes(bool from_first, double excess, int num_rows, Change& best) const;

  std::span<const PackedAnswer> answers_;  // those that pack() was given
  std::vector<double> costs_;              // indexed by answer
  std::vector<uint8_t> first_;             // indexed by answer
  std::vector<int32_t> sorted_;            // answers, the most expensive first
  uint64_t row_counts_ = 0;                // bit n is set if an answer has n rows
  double share_ = 0.5;                     // share of the first half
  double load_ = 0, all_ = 0;              // cost of the first half; of both halves
  int count_ = 0, num_first_ = 0;          // rows and answers of the first half
};

}  // namespace hocket
