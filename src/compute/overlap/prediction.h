// Predicts exactly what a plan takes: the max-plus recurrence of its order over stage times, with
// one core and one link per rank, all ranks equal. It computes in whole picoseconds, so a
// prediction has the same value everywhere. Pure; allocates nothing.
//
//   compute   t = t + time of the operation;  a wait: t = max(t, there) + unpacking
//   link      begin = max(t, busy), busy = begin + busy_us, there = busy + latency_us
//
// Source: docs/contracts/overlap.md, "Prediction".
#pragma once

#include <span>

#include "compute/overlap/order.h"
#include "compute/overlap/plan.h"
#include "compute/overlap/stage_times.h"

namespace hocket {

struct Prediction {
  double step_us = 0;     // all layers and other work
  double exposed_us = 0;  // part of step_us that waits for transfers; the sum of the next two
  double dispatch_exposed_us = 0, combine_exposed_us = 0;
  double compute_us = 0;  // part of step_us on the cores, without other work
};

// Predicts many orders over the same halves.
class Predictor {
 public:
  // One half or two; at most kMaxParts messages a half and way.
  Predictor(std::span<const StageTimes> halves, const Grain& grain, const LayerCounts& layers);

  // Returns the step time [us] of an order with as many halves.
  double step_us(const Order& order) const;
  Prediction predict(const Order& order) const;
  // Returns a bound [us] that no order of these halves can beat, with shared experts at any place.
  // It is the largest of: the cores' work; the link's work with what must come before and after it;
  // the longest chain of one half that has core and link to itself. The time of other work is
  // added.
  double lower_bound_us() const;

 private:
  using Picoseconds = int64_t;
  struct Transfer {
    Picoseconds busy = 0, latency = 0;
  };
  struct Half {
    std::array<Picoseconds, kNumStages> stages{};  // by index_of(Stage)
    Transfer dispatch, combine;
    std::array<Picoseconds, kMaxParts> waves{};  // the link's time for each wave of the combine
    std::array<Picoseconds, kMaxParts> added{};  // the cores' time for each wave beyond the experts
    bool up_first = false;
  };
  struct Core;  // the state of a rank in a step

  int num_until_repeat() const;
  Core play(const Order& order) const;
  void play_tick(Core& core, const Order& order, int tick) const;
  void play_slot(Core& core, int half, const Stage& stage) const;
  void wait_part(Core& core, int half, int part) const;
  void send_back(Core& core, int half, int wave) const;

  std::array<Half, 2> halves_{};
  int num_halves_ = 0;
  Grain grain_;
  LayerCounts layers_;
  int num_until_repeat_ = 0;  // the layers after which kinds repeat; 0: no short sequence does
  Picoseconds compute_ = 0;   // compute time of a step, the same for every order
};

}  // namespace hocket
