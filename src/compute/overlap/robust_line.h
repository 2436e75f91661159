// Statistics of noisy times on a link: when they have shifted, and a line through them. Bounded;
// nothing allocates.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "compute/overlap/tuning.h"

namespace hocket {

// Detects that a measured quantity has shifted: enough values in a row are far from what was
// expected, all on the same side.
class ShiftDetector {
 public:
  struct Runs {
    int above, below;  // how many values in a row prove a shift
  };
  ShiftDetector(double far, Runs runs) : far_(far), runs_(runs) {}
  // Watches times on a link.
  ShiftDetector() : ShiftDetector(kTuning.far_link, {kTuning.link_changes, kTuning.link_changes}) {}
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
// between pairs that lie well apart in x, so outliers do not move it as long as they are less than
// half. Where all x are about equal, floor is 0. After a shift the older pairs are forgotten.
class RobustLine {
 public:
  void add(double x, double y);
  int count() const { return count_; }
  double at(double x) const { return floor_ + slope_ * x; }

 private:
  void fit();

  std::array<std::array<double, 2>, kTuning.points> points_{};
  int count_ = 0, next_ = 0;
  double floor_ = 0, slope_ = 0;
  ShiftDetector watch_;
};

}  // namespace hocket
