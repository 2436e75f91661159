// `hocket bench overlap` in virtual time: the executor over the loopback with equal ranks and stage
// times by formula (overlap_shape.h). Results are equal to the nanosecond on any machine.
#pragma once

#include "base/result.h"
#include "bench/overlap_figures.h"
#include "bench/overlap_shape.h"

namespace hocket {

struct VirtualPoint {
  const OverlapShape& shape;
  Phase phase = Phase::decode;
  int rows = 0;
  double link_gbit = 1;
  int ranks = 2;
  bool search = false;  // plays the best of all orders, too
};

// Plays every named order at an even share and in one part; by prediction, the best of them at all
// shares and in all parts, and the best of all_orders(); and the plan that search() chooses.
// Errors: lost_rank, out_of_memory.
Result<PlayedPoint> play_virtual(const VirtualPoint& point);

}  // namespace hocket
