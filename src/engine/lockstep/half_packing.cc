#include "engine/lockstep/half_packing.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/check.h"
#include "compute/forward/split.h"

namespace hocket {
namespace {

constexpr int kMaxChanges = 32;
constexpr double kEvenEnough = 1e-3;  // share of all cost

}  // namespace

void HalfPacker::reserve(int max_answers) {
  costs_.reserve(max_answers), first_.reserve(max_answers), sorted_.reserve(max_answers);
}

int HalfPacker::pack(std::span<const PackedAnswer> answers, const HalfPacking& packing,
                     Counts counts) {
  HOCKET_CHECK(0 < packing.share && packing.share < kWholeShare);
  answers_ = answers;
  costs_.clear();
  int num_rows = 0;
  row_counts_ = 0;
  for (const PackedAnswer& answer : answers) {
    HOCKET_CHECK((answer.rows >= 1 && answer.rows <= PackedAnswer::kMaxRows));
    const double of_rows = counts == Counts::free ? packing.keys_per_row * answer.rows : 0;
    costs_.push_back(static_cast<double>(answer.keys) + of_rows);
    num_rows += answer.rows;
    row_counts_ |= uint64_t{1} << answer.rows;
  }
  all_ = std::accumulate(costs_.begin(), costs_.end(), 0.0);
  share_ = static_cast<double>(packing.share) / kWholeShare;
  first_.assign(answers.size(), 0);
  load_ = 0, count_ = 0, num_first_ = 0;
  sorted_.resize(answers.size());
  std::iota(sorted_.begin(), sorted_.end(), 0);
  std::ranges::sort(
      sorted_, [this](int a, int b) { return cost(a) != cost(b) ? cost(a) > cost(b) : a < b; });
  if (answers.size() < 2) {
    assign_answers(num_rows, 0);
    return count_;
  }
  if (counts == Counts::by_share) {
    const int wanted =
        rows_by_share(num_rows, {.share = packing.share, .row_tile = packing.row_tile});
    assign_answers(wanted, num_rows - wanted);
  } else {
    assign_answers(num_rows - 1, num_rows - 1);
    even_out(counts);
    round_to(nearest_multiple(count_, packing.row_tile, num_rows));
  }
  even_out(Counts::by_share);
  return count_;
}

void HalfPacker::put(int answer, bool first) {
  if (in_first(answer) == first) return;
  first_[static_cast<size_t>(answer)] = first ? 1 : 0;
  load_ += first ? cost(answer) : -cost(answer);
  count_ += first ? rows(answer) : -rows(answer);
  num_first_ += first ? 1 : -1;
}

// An answer that fits into no half gets into the one with more room.
void HalfPacker::assign_answers(int max_first, int max_second) {
  double second = 0;
  for (const int answer : sorted_) {
    const int num_rows = rows(answer);
    // Compares load / share of the two halves, each with this answer, without a division.
    const double done = (load_ + cost(answer)) * (1 - share_);
    const double other = (second + cost(answer)) * share_;
    const bool fits_first = num_rows <= max_first, fits_second = num_rows <= max_second;
    const bool sooner =
        fits_first || max_first == max_second ? done <= other : max_first > max_second;
    if (fits_first != fits_second ? fits_first : sooner) {
      put(answer, true);
      max_first -= num_rows;
    } else {
      second += cost(answer);
      max_second -= num_rows;
    }
  }
}

// Moves the cheapest answers, which changes the cost least, while the number gets nearer.
void HalfPacker::round_to(int first_rows) {
  const bool grows = first_rows > count_;
  for (size_t i = sorted_.size(); i-- > 0 && count_ != first_rows;) {
    const int answer = sorted_[i];
    if (in_first(answer) == grows || !may_leave(!grows)) continue;
    const int off = std::abs(first_rows - count_);
    if (std::abs(off - rows(answer)) < off) put(answer, grows);
  }
}

void HalfPacker::even_out(Counts counts) {
  for (int i = 0; i < kMaxChanges; ++i) {
    const double too_much = std::abs(excess());
    const bool from_first = excess() > 0;
    if (too_much <= kEvenEnough * all_) return;
    const Change change = best_change(from_first, too_much, counts);
    if (change.leaves < 0) return;
    put(change.leaves, !from_first);
    if (change.comes >= 0) put(change.comes, from_first);
  }
}

// If the number of rows is settled, only answers of equally many rows change places.
HalfPacker::Change HalfPacker::best_change(bool from_first, double excess, Counts counts) const {
  Change best{.left_over = excess};
  if (counts == Counts::free) {
    for (const int leaves : sorted_) {
      const double left_over = std::abs(excess - cost(leaves));
      if (in_first(leaves) == from_first && may_leave(from_first) && left_over < best.left_over)
        best = {leaves, -1, left_over};
    }
    consider_changes(from_first, excess, kAnyRows, best);
    return best;
  }
  for (uint64_t remaining = row_counts_; remaining != 0; remaining &= remaining - 1)
    consider_changes(from_first, excess, std::countr_zero(remaining), best);
  return best;
}

// Finds the best exchange of two answers, each of num_rows rows. For each one that may leave, the
// best one to move back costs the leaving one's cost less the excess. Both halves are sorted by
// falling cost, so one walk finds all pairs.
void HalfPacker::consider_changes(bool from_first, double excess, int num_rows,
                                  Change& best) const {
  const auto consider = [&](int leaves, int comes) {
    const double left_over = std::abs(excess - (cost(leaves) - cost(comes)));
    if (left_over < best.left_over) best = {leaves, comes, left_over};
  };
  const auto is_in = [&](int answer, bool first) {
    return in_first(answer) == first && (num_rows == kAnyRows || rows(answer) == num_rows);
  };
  int dearer = -1;  // last answer of the other half that costs at least `wanted`
  size_t next = 0;
  for (const int leaves : sorted_) {
    if (!is_in(leaves, from_first)) continue;
    const double wanted = cost(leaves) - excess;
    for (; next < sorted_.size(); ++next) {
      const int other = sorted_[next];
      if (!is_in(other, !from_first)) continue;
      if (cost(other) < wanted) break;
      dearer = other;
    }
    if (dearer >= 0) consider(leaves, dearer);
    if (next < sorted_.size()) consider(leaves, sorted_[next]);
  }
}

}  // namespace hocket
