// The only executor: it plays an order over layers and halves. At the start and the end of a pass
// some slots have no layer. The range test skips them, so the first and the last layers need no
// code of their own.
#pragma once

#include <span>

#include "compute/forward/half.h"
#include "compute/overlap/order.h"

namespace hocket {

// An observer that sees what a pass computes, layer by layer (`hocket check`).   Thread: engine.
class ForwardProbe {
 public:
  virtual ~ForwardProbe() = default;
  // play() calls it after `op` of `layer` was computed for the rows of `half`.
  virtual void after(int layer, Op op, const Half& half) = 0;
  // Called inside Op::attn_core of a layer with a delta net: the net is computed, its output
  // projection is not.
  virtual void after_delta_net() {}
};

// Says if the operations of a half without rows are run. Where ranks exchange rows they must be
// `played`: other ranks wait for the messages of this half, and its experts work for their rows.
enum class EmptyHalves : uint8_t { passed_over, played };

struct PlayedPass {
  const Order& order;
  int num_layers = 0;
  EmptyHalves empty = EmptyHalves::passed_over;
};

// Calls run_op(layer, op, half) for every slot of every layer, in the sequence of the order:
//
//   tick t plays each slot for layer t - slot.lag; with lag 0 for half a and lag 1 for half b:
//   tick 0: a of layer 0  |  tick 1: a of layer 1, b of layer 0  |  tick 2: a of 2, b of 1 ...
//
// There are no errors; the order must be legal for every layer's graph (validate()). Thread:
// engine.
template <class RunOp>
void play(const PlayedPass& pass, std::span<Half> halves, RunOp&& run_op) {
  const auto& [order, num_layers, empty] = pass;
  HOCKET_CHECK(order.num_halves == static_cast<int>(halves.size()));
  const int ticks = num_layers + order.max_lag();
  for (int tick = 0; tick < ticks; ++tick)
    for (const Slot& slot : order.slots) {
      const int layer = tick - slot.lag;
      if (layer < 0 || layer >= num_layers) continue;
      Half& half = halves[slot.half];
      if (half.rows.count > 0 || empty == EmptyHalves::played) run_op(layer, slot.op, half);
    }
}

}  // namespace hocket
