// A line through noisy times on a link, for the ledger. Bounded; nothing allocates.
#pragma once

#include <array>

#include "compute/overlap/shift_detector.h"

namespace hocket {

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

  std::array<std::array<double, 2>, kLedgerTuning.points> points_{};
  int count_ = 0, next_ = 0;
  double floor_ = 0, slope_ = 0;
  ShiftDetector watch_;
};

}  // namespace hocket
