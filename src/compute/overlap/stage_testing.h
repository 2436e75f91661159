// Random stage times, for tests of predictions and choices.
#pragma once

#include <cmath>
#include <random>

#include "compute/overlap/stage_times.h"

namespace hocket::testing {

// Draws log-uniform times in whole multiples of 24 ns, so that the times of parts and of messages
// to one or three peers are whole nanoseconds.
struct StageTimeSampler {
  double latency_us = 0;

  double draw(std::mt19937& random, double low, double high) const {
    const double at = static_cast<double>(random()) / 0x1p32;
    return std::round(low * std::pow(high / low, at) / 0.024) * 0.024;
  }
  StageTimes operator()(std::mt19937& random) const {
    StageTimes times;
    times.of(Op::attn_in) = draw(random, 30, 200);
    times.of(Op::attn_core) = draw(random, 50, 600);
    times.of(Op::mlp) = draw(random, 30, 200);
    times.of(Op::shared) = draw(random, 10, 100);
    times.of(Op::experts) = draw(random, 50, 600);
    times.dispatch = {draw(random, 50, 300), latency_us};
    times.combine = {draw(random, 100, 500), latency_us};
    for (const Op op :
         {Op::gate, Op::dispatch_start, Op::dispatch_wait, Op::combine_start, Op::combine_wait})
      times.of(op) = draw(random, 0.5, 10);
    times.part_us = draw(random, 1, 10);
    times.wave_us = draw(random, 1, 10);
    times.spread_us = 3 * times.part_us;
    times.up_first = random() % 2 == 0;
    return times;
  }
};

}  // namespace hocket::testing
