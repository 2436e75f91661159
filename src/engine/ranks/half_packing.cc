#include "engine/ranks/half_packing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "compute/forward/split.h"

namespace hocket {
namespace {

constexpr int kMostChanges = 32;
constexpr double kEvenEnough = 1e-3;  // share of all cost

}  // namespace

void HalfPacker::reserve(int max_rows) {
  costs_.reserve(max_rows), first_.reserve(max_rows), sorted_.reserve(max_rows);
}

int HalfPacker::pack(std::span<const int32_t> keys, const HalfPacking& packing, Counts counts) {
  HOCKET_CHECK(0 < packing.share && packing.share < kWholeShare);
  const int rows = static_cast<int>(keys.size());
  costs_.assign(keys.begin(), keys.end());
  if (counts == Counts::free)
    for (double& cost : costs_) cost += packing.keys_a_row;
  all_ = std::accumulate(costs_.begin(), costs_.end(), 0.0);
  share_ = static_cast<double>(packing.share) / kWholeShare;
  first_.assign(keys.size(), 0);
  load_ = 0, count_ = 0;
  sorted_.resize(keys.size());
  std::iota(sorted_.begin(), sorted_.end(), 0);
  std::ranges::sort(
      sorted_, [this](int a, int b) { return cost(a) != cost(b) ? cost(a) > cost(b) : a < b; });
  if (rows < 2) {
    deal(rows, 0);
    return count_;
  }
  if (counts == Counts::by_share) {
    const int wanted = rows_by_share(rows, {.share = packing.share, .row_tile = packing.row_tile});
    deal(wanted, rows - wanted);
  } else {
    deal(rows - 1, rows - 1);
    even_out(counts);
    round_to(nearest_multiple(count_, packing.row_tile, rows));
  }
  even_out(Counts::by_share);
  return count_;
}

void HalfPacker::put(int row, bool first) {
  if (in_first(row) == first) return;
  first_[static_cast<size_t>(row)] = first ? 1 : 0;
  load_ += first ? cost(row) : -cost(row);
  count_ += first ? 1 : -1;
}

void HalfPacker::deal(int most_first, int most_second) {
  double second = 0;
  for (const int row : sorted_) {
    // Compares load / share of the two halves, each with this row, without a division.
    const double done = (load_ + cost(row)) * (1 - share_), other = (second + cost(row)) * share_;
    if (most_second == 0 || (most_first > 0 && done <= other)) {
      put(row, true);
      --most_first;
    } else {
      second += cost(row);
      --most_second;
    }
  }
}

// Moves the cheapest rows, which changes the cost least.
void HalfPacker::round_to(int first_rows) {
  const bool grows = first_rows > count_;
  for (size_t i = sorted_.size(); i-- > 0 && count_ != first_rows;) put(sorted_[i], grows);
}

void HalfPacker::even_out(Counts counts) {
  for (int i = 0; i < kMostChanges; ++i) {
    const double too_much = std::abs(excess());
    const bool from_first = excess() > 0;
    if (too_much <= kEvenEnough * all_) return;
    const Change change = best_change(from_first, too_much, counts);
    if (change.leaves < 0) return;
    put(change.leaves, !from_first);
    if (change.comes >= 0) put(change.comes, from_first);
  }
}

// For each row that may leave, the best row to come back costs the leaving row's cost less the
// excess. Both halves are sorted by falling cost, so one walk finds all pairs.
HalfPacker::Change HalfPacker::best_change(bool from_first, double excess, Counts counts) const {
  Change best{.left_over = excess};
  const auto weigh = [&](int leaves, int comes) {
    const double gain = cost(leaves) - (comes < 0 ? 0 : cost(comes));
    const double left_over = std::abs(excess - gain);
    if (left_over < best.left_over) best = {leaves, comes, left_over};
  };
  const int rows = static_cast<int>(sorted_.size());
  const bool may_move = counts == Counts::free && (from_first ? count_ : rows - count_) > 1;
  int dearer = -1;  // last row of the other half that costs at least `wanted`
  int next = 0;
  for (const int leaves : sorted_) {
    if (in_first(leaves) != from_first) continue;
    if (may_move) weigh(leaves, -1);
    const double wanted = cost(leaves) - excess;
    for (; next < rows; ++next) {
      const int other = sorted_[static_cast<size_t>(next)];
      if (in_first(other) == from_first) continue;
      if (cost(other) < wanted) break;
      dearer = other;
    }
    if (dearer >= 0) weigh(leaves, dearer);
    if (next < rows) weigh(leaves, sorted_[static_cast<size_t>(next)]);
  }
  return best;
}

}  // namespace hocket
