// `hocket bench overlap` in virtual time: the executor over the loopback, ranks alike, stage times
// by formula (overlap_shape.h). Equal to the nanosecond on any machine.
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
};

// Every named order at an even share and in one message, the best that all orders, shares and parts
// have by predict(), and what search() chooses; each played. Errors: lost_rank, out_of_memory.
Result<PlayedPoint> play_virtual(const VirtualPoint& point);

}  // namespace hocket
