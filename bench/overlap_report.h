// Points of `hocket bench overlap` as lines for people or as JSON, and the goals over all of them.
#pragma once

#include <vector>

#include "bench/overlap_figures.h"

namespace hocket {

class OverlapReport {
 public:
  explicit OverlapReport(bool json) : json_(json) {}
  // Printed at once.
  void add(PlayedPoint point);
  // Which goals hold, over all points of each clock. In JSON nothing.
  void print_goals() const;

 private:
  void print(const PlayedPoint& point) const;
  void print_json(const PlayedPoint& point) const;

  const bool json_;
  std::vector<PlayedPoint> points_;
};

}  // namespace hocket
