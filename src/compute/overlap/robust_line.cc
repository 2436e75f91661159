#include "compute/overlap/robust_line.h"

#include <algorithm>
#include <span>

namespace hocket {
namespace {

double middle_of(std::span<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void RobustLine::add(double x, double y) {
  constexpr int kMax = kLedgerTuning.points;
  if (const int since = count_ > 0 ? watch_.add(y / at(x)) : 0; since > 0) {
    // Keep only the values since the shift.
    const int kept = since - 1;
    const auto old = points_;
    for (int i = 0; i < kept; ++i)
      points_[static_cast<size_t>(i)] = old[static_cast<size_t>((next_ + kMax - kept + i) % kMax)];
    count_ = next_ = kept;
  }
  points_[static_cast<size_t>(next_)] = {x, y};
  next_ = (next_ + 1) % kMax;
  count_ = std::min(count_ + 1, kMax);
  fit();
}

void RobustLine::fit() {
  std::array<double, kLedgerTuning.points * kLedgerTuning.points> values{};
  const auto points = std::span(points_).first(static_cast<size_t>(count_));
  size_t num = 0;
  for (const auto& [x, y] : points)
    for (const auto& [other_x, other_y] : points)
      if (x > other_x * kLedgerTuning.slope_apart) values[num++] = (y - other_y) / (x - other_x);
  const bool is_line = static_cast<int>(num) >= kLedgerTuning.few_slopes;
  const double slope = is_line ? std::max(middle_of(std::span(values).first(num)), 0.0) : 0;
  num = 0;
  for (const auto& [x, y] : points) values[num++] = y - slope * x;
  const double floor = middle_of(std::span(values).first(num));
  if (slope > 0 && floor >= 0) {
    slope_ = slope, floor_ = floor;
    return;
  }
  num = 0;
  for (const auto& [x, y] : points) values[num++] = y / x;
  slope_ = middle_of(std::span(values).first(num)), floor_ = 0;
}

}  // namespace hocket
