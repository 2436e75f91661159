// How far predictions are off. Bounded; nothing allocates.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "base/running_median.h"
#include "compute/overlap/robust_line.h"
#include "compute/overlap/tuning.h"

namespace hocket {

// The median of measured / predicted times. After a shift the older values are forgotten.
class MeasuredRatio {
 public:
  void add(double ratio) {
    std::rotate(last_.begin(), last_.begin() + 1, last_.end());
    last_.back() = static_cast<float>(ratio);
    if (count() > 0) {
      const double off = ratio / median(), far = kTuning.far_ratio;
      const double weight = std::max(0.1, 1.0 / count());  // weight of this value in spread_
      if (off < far && off * far > 1) spread_ += weight * (1.5 * std::abs(off - 1) - spread_);
      if (const int since = watch_.add(off); since > 0) {
        median_.clear();
        for (int i = since; i > 1; --i) median_.add(*(last_.end() - i));
      }
    }
    median_.add(last_.back());
  }
  // Makes the median count as `most` measurements, because what it was measured on may have
  // changed.
  void weaken(int most) {
    const auto median = static_cast<float>(median_.median());
    const int kept = std::min(count(), most);
    median_.clear();
    for (int i = 0; i < kept; ++i) median_.add(median);
  }
  // Makes it count half, but not nothing: that it was measured once is not forgotten.
  void age() { weaken(std::max(count() / 2, 1)); }
  int count() const { return median_.count(); }
  double median() const { return median_.median(); }  // 0 without values
  // Returns the weighted mean of the median and a guess.
  double value(double guess) const {
    return (count() * median() + kTuning.guess * guess) / (count() + kTuning.guess);
  }
  // Returns the relative standard error of value(), if single measurements differ by `spread`.
  double error(double spread) const {
    return spread * std::sqrt(count()) / (count() + kTuning.guess);
  }
  double spread() const { return spread_; }  // relative, of single measurements

 private:
  RunningMedian<kTuning.ratios> median_;
  std::array<float, kTuning.slower> last_{};
  double spread_ = 0;
  ShiftWatch watch_{kTuning.far_ratio, {kTuning.slower, kTuning.faster}};
};

}  // namespace hocket
