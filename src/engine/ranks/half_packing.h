// Which rows of answers go to which half, so that both take the same time: every row costs what it
// costs whatever it attends to, and its keys. Prompts are not packed but cut (forward/split.h).
// Source: docs/contracts/overlap.md, "Halves".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/overlap/plan.h"

namespace hocket {

// How a step in two halves is to be packed.
struct HalfPacking {
  int share = kEvenShare;  // of kWholeShare: the first half's
  int row_tile = 1;        // the first half has a multiple of so many rows, where possible
  // A row costs as much as reading so many keys (engine/forecast/stage_forecast.h, keys_a_row()).
  double keys_a_row = 4096;
};

// The dearest row first, each to the half that is done with it sooner; then rows change halves, the
// best change first, while that evens them out. Deterministic; O(n log n); allocates nothing for as
// many rows as were reserved.
class HalfPacker {
 public:
  enum class Counts : uint8_t {
    free,      // a half may have fewer rows for its longer keys
    by_share,  // rows by share alone, keys as evenly as these allow
  };
  void reserve(int max_rows);
  // keys[i]: what row i reads. Returns how many rows the first half has: one at least, and where
  // there are two, not all.
  int pack(std::span<const int32_t> keys, const HalfPacking& packing, Counts counts);
  // As packed last.
  bool in_first(int row) const { return first_[static_cast<size_t>(row)] != 0; }

 private:
  // A row leaves the dearer half, alone or for one that comes back.
  struct Change {
    int leaves = -1, comes = -1;
    double left_over = 0;  // of what the dearer half has too much
  };

  double cost(int row) const { return costs_[static_cast<size_t>(row)]; }
  double excess() const { return load_ - share_ * all_; }
  void put(int row, bool first);
  void deal(int most_first, int most_second);
  void round_to(int first_rows);
  void even_out(Counts counts);
  Change best_change(bool from_first, double excess, Counts counts) const;

  std::vector<double> costs_;    // by row
  std::vector<uint8_t> first_;   // by row
  std::vector<int32_t> sorted_;  // rows, the dearest first
  double share_ = 0.5;           // of the first half
  double load_ = 0, all_ = 0;    // cost of the first half, of both
  int count_ = 0;                // rows of the first half
};

}  // namespace hocket
