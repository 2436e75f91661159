// Running medians of a few numbers each, and lines through points: the parts that the planner's
// fits are made of. Bounded; nothing allocates.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

namespace hocket {

// The median of the last `Most` values.
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

// y = floor + a x + b z; all three numbers are at least 0.
struct Line {
  double floor = 0, a = 0, b = 0;
  double at(double x, double z) const { return floor + a * x + b * z; }
};

struct Point {
  double x = 0, z = 0, y = 0;  // y > 0
};

// Returns the line with the least squares of relative errors, whose three numbers are at least 0.
// With `flat`, b is 0.
Line line_through(std::span<const Point> points, bool flat);

// Detects that a measured quantity has shifted: enough values in a row are far from what was
// expected, all on the same side.
class ShiftWatch {
 public:
  struct Runs {
    int above, below;  // how many values in a row prove a shift
  };
  ShiftWatch(double far, Runs runs) : far_(far), runs_(runs) {}
  // `ratio` is the measured value divided by the expected one. If this value proves a shift,
  // returns the number of values since it (this one included); else 0.
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

// Fits y = floor + slope x to the last pairs (x, y), x > 0. The slope is the median of the slopes
// between pairs that lie well apart in x, so that wrong pairs do not move it while they are less
// than half. Where all x are about equal, floor is 0. After a shift the older pairs are forgotten.
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

// The median of measured / predicted times. After a shift the older values are forgotten.
class MeasuredRatio {
 public:
  void add(double ratio);
  // Makes the median count as kGuess measurements, because what it was measured on seems to have
  // changed. A median beyond kFarthest may mix values from before and after the change and is
  // forgotten.
  void weaken() {
    const auto median = static_cast<float>(median_.median());
    const bool is_of_one = median < kFarthest && median * kFarthest > 1;
    const int kept = is_of_one ? std::min(median_.count(), kGuess) : 0;
    median_.clear();
    for (int i = 0; i < kept; ++i) median_.add(median);
  }
  int count() const { return median_.count(); }
  double median() const { return median_.median(); }  // 0 without values
  // Returns the weighted mean of the median and `otherwise`, which counts as kGuess measurements.
  double value(double otherwise) const {
    return (median_.count() * median_.median() + kGuess * otherwise) / (median_.count() + kGuess);
  }
  // Returns the relative standard error of value(), if single measurements differ by `spread`.
  double error(double spread) const {
    return spread * std::sqrt(median_.count()) / (median_.count() + kGuess);
  }
  double spread() const { return spread_; }

 private:
  // kSlower values in a row prove that steps became slower, kFaster that they became faster: a
  // stall also makes steps slower, but hardly anything makes them faster by chance.
  static constexpr int kGuess = 2, kSlower = 8, kFaster = 3;
  static constexpr double kFar = 1.25, kFarthest = 1.5;

  RunningMedian<31> median_;
  std::array<float, kSlower> last_{};
  double spread_ = 0;
  ShiftWatch watch_{kFar, {kSlower, kFaster}};
};

}  // namespace hocket
