#include "compute/overlap/medians.h"

#include <limits>

namespace hocket {
namespace {

// X must differ by this factor, or the slope between two points means little.
constexpr double kApart = 1.5;

using Vector = std::array<double, 3>;
struct Normal {  // the normal equations of least squares: matrix and right-hand side
  std::array<Vector, 3> matrix{};
  Vector right{};
};

// Solves the equations for the unknowns in the bit set `used` by elimination; the others are 0.
// Returns all 0 if there is no sensible solution.
Vector solve(Normal n, unsigned used) {
  Vector answer{};
  for (size_t i = 0; i < 3; ++i) {
    if ((used >> i & 1) == 0) continue;
    if (n.matrix[i][i] <= 1e-12) return {};
    for (size_t row = 0; row < 3; ++row) {
      if (row == i || (used >> row & 1) == 0) continue;
      const double factor = n.matrix[row][i] / n.matrix[i][i];
      for (size_t col = 0; col < 3; ++col) n.matrix[row][col] -= factor * n.matrix[i][col];
      n.right[row] -= factor * n.right[i];
    }
  }
  for (size_t i = 0; i < 3; ++i)
    if ((used >> i & 1) != 0) answer[i] = n.right[i] / n.matrix[i][i];
  return answer;
}

double middle_of(std::span<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Line line_through(std::span<const Point> points, bool flat) {
  double x_most = 1e-9, z_most = 1e-9;
  for (const Point& p : points) x_most = std::max(x_most, p.x), z_most = std::max(z_most, p.z);
  Normal normal;
  for (const Point& p : points) {
    const Vector terms = {1 / p.y, p.x / x_most / p.y, p.z / z_most / p.y};
    for (size_t i = 0; i < 3; ++i) {
      normal.right[i] += terms[i];
      for (size_t k = 0; k < 3; ++k) normal.matrix[i][k] += terms[i] * terms[k];
    }
  }
  // There are three terms, so every choice of them is tried; the best fit with no number below 0
  // wins.
  Vector best{};
  double least = std::numeric_limits<double>::infinity();
  for (unsigned used = 1; used < (flat ? 4U : 8U); ++used) {
    const Vector tried = solve(normal, used);
    if (std::ranges::any_of(tried, [](double v) { return v < 0 || !std::isfinite(v); })) continue;
    double error = 0;
    for (const Point& p : points) {
      const double fitted = tried[0] + tried[1] * p.x / x_most + tried[2] * p.z / z_most;
      error += (1 - fitted / p.y) * (1 - fitted / p.y);
    }
    if (error < least - 1e-9) least = error, best = tried;
  }
  return {.floor = best[0], .a = best[1] / x_most, .b = best[2] / z_most};
}

void MeasuredRatio::add(double ratio) {
  std::rotate(last_.begin(), last_.begin() + 1, last_.end());
  last_.back() = static_cast<float>(ratio);
  if (median_.count() > 0) {
    const double off = ratio / median_.median();
    const double weight = std::max(0.1, 1.0 / median_.count());  // weight of this value in spread_
    if (off < kFar && off * kFar > 1)                            // larger deviations are not noise
      spread_ += weight * (1.5 * std::abs(off - 1) - spread_);
    if (const int since = watch_.add(off); since > 0) {
      median_.clear();
      for (int i = since; i > 1; --i) median_.add(*(last_.end() - i));
    }
  }
  median_.add(last_.back());
}

void RobustLine::add(double x, double y) {
  if (count_ > 0 && watch_.add(y / at(x)) > 0) {  // keep only the values since the shift
    constexpr int kLeft = kShiftRun - 1;
    const auto old = points_;
    for (int i = 0; i < kLeft; ++i)
      points_[static_cast<size_t>(i)] =
          old[static_cast<size_t>((next_ + kMost - kLeft + i) % kMost)];
    count_ = next_ = kLeft;
    ++num_shifts_;
  }
  points_[static_cast<size_t>(next_)] = {x, y};
  next_ = (next_ + 1) % kMost;
  count_ = std::min(count_ + 1, kMost);
  fit();
}

void RobustLine::fit() {
  std::array<double, kMost * kMost> values{};
  const auto points = std::span(points_).first(static_cast<size_t>(count_));
  size_t num = 0;
  for (const auto& [x, y] : points)
    for (const auto& [other_x, other_y] : points)
      if (x > other_x * kApart) values[num++] = (y - other_y) / (x - other_x);
  const double slope = num > 2 ? std::max(middle_of(std::span(values).first(num)), 0.0) : 0;
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
