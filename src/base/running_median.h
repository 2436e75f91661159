// Bounded; nothing allocates.
#pragma once

#include <algorithm>
#include <array>

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
  void clear() { *this = {}; }
  int count() const { return count_; }
  double median() const { return median_; }  // 0 without values

 private:
  std::array<float, Most> values_{};
  float median_ = 0;
  int count_ = 0, next_ = 0;
};

}  // namespace hocket
