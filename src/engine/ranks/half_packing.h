// Distributes decode rows over two halves so that both take the same time: each row has a fixed
// cost and a cost per key that it reads. Prompts are not packed but cut (forward/split.h).
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
  int row_tile = 1;        // the first half has a multiple of it in rows, if possible
  // The fixed cost of a row, in keys (engine/plan/stage_forecast.h, keys_a_row()).
  double keys_a_row = 4096;
};

// Deals out the most expensive row first, each to the half that finishes it sooner; then changes
// rows between halves, the best change first, while that evens them out. Deterministic; O(n log n);
// allocates nothing up to the reserved number of rows.
class HalfPacker {
 public:
  enum class Counts : uint8_t {
    free,      // a half may have fewer rows if they have more keys
    by_share,  // rows by share alone, keys as evenly as that allows
  };
  void reserve(int max_rows);
  // Packs rows of which row i reads keys[i] keys. Returns the number of rows in the first half: at
  // least one, and with two or more rows not all.
  int pack(std::span<const int32_t> keys, const HalfPacking& packing, Counts counts);
  // True if the last pack() put the row into the first half.
  bool in_first(int row) const { return first_[static_cast<size_t>(row)] != 0; }

 private:
  // A change: one row leaves the half with more cost, and one may come back.
  struct Change {
    int leaves = -1, comes = -1;
    double left_over = 0;  // excess of that half after the change
  };

  double cost(int row) const { return costs_[static_cast<size_t>(row)]; }
  double excess() const { return load_ - share_ * all_; }
  void put(int row, bool first);
  void deal(int most_first, int most_second);
  void round_to(int first_rows);
  void even_out(Counts counts);
  Change best_change(bool from_first, double excess, Counts counts) const;

  std::vector<double> costs_;    // indexed by row
  std::vector<uint8_t> first_;   // indexed by row
  std::vector<int32_t> sorted_;  // rows, the most expensive first
  double share_ = 0.5;           // share of the first half
  double load_ = 0, all_ = 0;    // cost of the first half; of both halves
  int count_ = 0;                // rows of the first half
};

}  // namespace hocket
