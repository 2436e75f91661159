// What a plan would take, exactly: the max-plus recurrence of its order over stage times, one core
// and one link a rank, all ranks alike. Pure.
//
//   compute   t = t + time of the operation;  a wait: t = max(t, there) + unpacking
//   link      begin = max(t, busy), busy = begin + busy_us, there = busy + latency_us
//
// Source: docs/contracts/overlap.md, "prediction".
#pragma once

#include <span>

#include "compute/overlap/order.h"
#include "compute/overlap/stage_times.h"

namespace hocket {

// A plan in numbers: stage times of each half.
struct PlanTimes {
  const Order& order;
  std::span<const StageTimes> halves;  // order.num_halves
  int parts = 1;
};

struct Prediction {
  double step_us = 0;     // of all layers, and beside
  double period_us = 0;   // of one MoE layer in the steady state
  double exposed_us = 0;  // of step_us, waiting for transfers
};

Prediction predict(const PlanTimes& plan, const LayerCounts& layers);

// No order of these halves can be faster: of a MoE layer max(compute, link, longest chain of one
// half); of a step all layers, and beside.
double lower_bound_us(std::span<const StageTimes> halves, const LayerCounts& layers);

}  // namespace hocket
