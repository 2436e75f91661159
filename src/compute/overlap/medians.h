// Running medians of a few numbers each, and lines through points: what the planner's fits are made
// of. Bounded; nothing allocates.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

namespace hocket {

// Median of the last `Most` values.
template <int Most>
class RunningMedian {
 public:
  void add(float value) {
    values_[static_cast<size_t>(next_)] = value;
    next_ = (next_ + 1) % Most;
    count_ = std::min(count_ + 1, Most);
    std::array<float, Most> sorted = values_;
    const auto middle = sorted.begin() + count_ / 2;
    std::nth_element(sorted.begin(), middle, sorted.begin() + count_);
    median_ = *middle;
    if (count_ % 2 == 0) median_ = (median_ + *std::max_element(sorted.begin(), middle)) / 2;
  }
  void clear() {
    count_ = next_ = 0;
    median_ = 0;
  }
  int count() const { return count_; }
  double median() const { return median_; }  // 0 without values

 private:
  std::array<float, Most> values_{};
  float median_ = 0;
  int count_ = 0, next_ = 0;
};

// floor + a x + b z, all of them at least 0.
struct Line {
  double floor = 0, a = 0, b = 0;
  double at(double x, double z) const { return floor + a * x + b * z; }
};

struct Point {
  double x = 0, z = 0, y = 0;  // y > 0
};

// The line of least squares of relative errors, none of its three numbers below 0; with `flat`,
// none of z.
Line line_through(std::span<const Point> points, bool flat);

// Whether something has become another: so many values in a row far from what was expected, all to
// the same side.
class ShiftWatch {
 public:
  struct Runs {
    int above, below;  // values in a row
  };
  ShiftWatch(double far, Runs runs) : far_(far), runs_(runs) {}
  // ratio: of what is to what was expected. So many values, this one too, since it shifted, with
  // the one that proves it; else 0.
  int add(double ratio) {
    const int side = ratio > far_ ? 1 : ratio * far_ < 1 ? -1 : 0;
    run_ = side == 0 ? 0 : side == side_ ? run_ + 1 : 1;
    side_ = side;
    return side != 0 && run_ >= (side > 0 ? runs_.above : runs_.below) ? std::exchange(run_, 0) : 0;
  }

 private:
  double far_;
  Runs runs_;
  int run_ = 0, side_ = 0;
};

// Of pairs (x, y) with x > 0: y = floor + slope x by the median of the slopes between those that
// lie well apart, which less than half of them being wrong does not change; floor 0 where all x are
// about the same. Forgets what was, once it has shifted.
class RobustLine {
 public:
  void add(double x, double y);
  int count() const { return count_; }
  uint32_t num_shifts() const { return num_shifts_; }
  double at(double x) const { return floor_ + slope_ * x; }

 private:
  static constexpr int kMost = 16, kShiftRun = 3;
  void fit();

  std::array<std::array<double, 2>, kMost> points_{};
  int count_ = 0, next_ = 0;
  double floor_ = 0, slope_ = 0;
  ShiftWatch watch_{1.4, {kShiftRun, kShiftRun}};
  uint32_t num_shifts_ = 0;
};

// What is measured, as a multiple of what was predicted. Forgets what was, once it has shifted.
class MeasuredRatio {
 public:
  void add(double ratio);
  // The world has changed, or so it seems: the median counts as kGuess measurements from now on,
  // and for nothing where it was taken in both worlds.
  void weaken() {
    const auto median = static_cast<float>(median_.median());
    const bool is_of_one = median < kFarthest && median * kFarthest > 1;
    const int kept = is_of_one ? std::min(median_.count(), kGuess) : 0;
    median_.clear();
    for (int i = 0; i < kept; ++i) median_.add(median);
  }
  int count() const { return median_.count(); }
  double median() const { return median_.median(); }  // 0 without values
  // The median, where `otherwise` counts as kGuess measurements.
  double value(double otherwise) const {
    return (median_.count() * median_.median() + kGuess * otherwise) / (median_.count() + kGuess);
  }
  // Standard error of value(), relative, where single ones differ by `spread`.
  double error(double spread) const {
    return spread * std::sqrt(median_.count()) / (median_.count() + kGuess);
  }
  double spread() const { return spread_; }

 private:
  // A stall makes steps slower, hardly ever faster.
  static constexpr int kGuess = 2, kSlower = 8, kFaster = 3;
  static constexpr double kFar = 1.25, kFarthest = 1.5;

  RunningMedian<31> median_;
  std::array<float, kSlower> last_{};
  double spread_ = 0;
  ShiftWatch watch_{kFar, {kSlower, kFaster}};
};

}  // namespace hocket
