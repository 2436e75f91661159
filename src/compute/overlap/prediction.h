// What a plan would take, exactly: the max-plus recurrence of its order over stage times, one core
// and one link a rank, all ranks alike. In whole picoseconds, so a prediction is a value: equal
// everywhere. Pure; allocates nothing.
//
//   compute   t = t + time of the operation;  a wait: t = max(t, there) + unpacking
//   link      begin = max(t, busy), busy = begin + busy_us, there = busy + latency_us
//
// Source: docs/contracts/overlap.md, "Prediction".
#pragma once

#include <limits>
#include <span>

#include "compute/overlap/order.h"
#include "compute/overlap/stage_times.h"

namespace hocket {

// Halves that a prediction may have: more than are played.
inline constexpr int kMostPredictedHalves = 3;

// A plan in numbers: stage times of each half.
struct PlanTimes {
  const Order& order;
  std::span<const StageTimes> halves;  // order.num_halves
  int parts = 1;
};

struct Prediction {
  double step_us = 0;     // of all layers, and beside
  double period_us = 0;   // of one MoE layer in the steady state
  double exposed_us = 0;  // of step_us, waiting for transfers: the next two together
  double dispatch_exposed_us = 0, combine_exposed_us = 0;
  double compute_us = 0;  // of step_us, on the cores, without beside
  double link_us = 0;     // of step_us, how long the link is busy
};

Prediction predict(const PlanTimes& plan, const LayerCounts& layers);

// No order of these halves can be faster: of a step the most of what the cores do, what the link
// carries and what comes before and after, the longest chain of one half that has both to itself;
// and beside. With shared experts anywhere.
double lower_bound_us(std::span<const StageTimes> halves, const LayerCounts& layers, int parts = 1);

// The same for many orders over the same halves.
class Predictor {
 public:
  static constexpr double kNoLimit = std::numeric_limits<double>::infinity();

  // halves: 1 .. kMostPredictedHalves; parts: 1 .. kMaxParts.
  Predictor(std::span<const StageTimes> halves, int parts, const LayerCounts& layers);

  // Of an order of as many halves. kNoLimit if it takes `limit_us` or longer.
  double step_us(const Order& order, double limit_us = kNoLimit) const;
  Prediction predict(const Order& order) const;
  double lower_bound_us() const;

 private:
  using Picoseconds = int64_t;
  struct Transfer {
    Picoseconds busy = 0, latency = 0;
  };
  struct Half {
    std::array<Picoseconds, kNumOps> dense{}, moe{};  // 0: the layer has no such operation
    Transfer dispatch, combine;
    Picoseconds part = 0;
  };
  struct Core;  // where a rank is in a step

  // False: it gave up at the limit.
  bool play(Core& core, const Order& order, Picoseconds limit) const;
  void play_slot(Core& core, int half, Op op) const;
  void play_tick(Core& core, const Order& order, int tick, int num_layers) const;
  bool play_steady(Core& core, const Order& order, int num_ticks, Picoseconds limit) const;
  double steady_period_us(const Order& order) const;

  std::array<Half, kMostPredictedHalves> halves_{};
  int num_halves_ = 0, parts_ = 1;
  LayerCounts layers_;
  Picoseconds compute_ = 0;  // of a step, whatever the order
};

}  // namespace hocket
