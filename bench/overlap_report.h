// Prints the points of `hocket bench overlap` as text or JSON, and the goals over all points.
#pragma once

#include <vector>

#include "bench/overlap_figures.h"

namespace hocket {

class OverlapReport {
 public:
  explicit OverlapReport(bool json) : json_(json) {}
  // Prints the point at once and keeps it for print_goals().
  void add(PlayedPoint point);
  // Prints which goals hold over all points of each clock. Prints nothing in JSON.
  void print_goals() const;
  const std::vector<PlayedPoint>& points() const { return points_; }

 private:
  void print(const PlayedPoint& point) const;
  void print_json(const PlayedPoint& point) const;

  const bool json_;
  std::vector<PlayedPoint> points_;
};

}  // namespace hocket
