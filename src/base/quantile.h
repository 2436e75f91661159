// Computes medians and spreads of measured values.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace hocket {

// Returns the value below which a share q of `values` lies, interpolated; 0 if there are none.
inline double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const double at = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(std::floor(at));
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - std::floor(at)) * (values[above] - values[below]);
}

}  // namespace hocket
