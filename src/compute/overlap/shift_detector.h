// Detects that a measured quantity has shifted: enough values in a row are far from what was
// expected, all on the same side. Bounded; nothing allocates.
#pragma once

#include <utility>

#include "compute/overlap/tuning.h"

namespace hocket {

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

}  // namespace hocket
