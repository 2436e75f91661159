// The only executor: plays an order over layers and halves. Prologue and epilogue fall out of the
// range test.
#pragma once

#include <span>

#include "compute/forward/half.h"
#include "compute/overlap/order.h"

namespace hocket {

// Who wants to see what a pass computes, layer by layer (`hocket check`).   Thread: engine.
class ForwardProbe {
 public:
  virtual ~ForwardProbe() = default;
  // After `op` of `layer` for the rows of `half`.
  virtual void after(int layer, Op op, const Half& half) = 0;
};

// Whether the operations of a half without rows are run. Where ranks exchange rows they must be:
// others wait for its messages, and its experts work for them.
enum class EmptyHalves : uint8_t { passed_over, played };

struct Passage {
  const Order& order;
  int num_layers = 0;
  EmptyHalves empty = EmptyHalves::passed_over;
};

// run_op(layer, op, half) is called for every slot of every layer, in the order's time. Errors:
// none; the order is legal for every layer's graph (validate()).   Thread: engine.
template <class RunOp>
void play(const Passage& passage, std::span<Half> halves, RunOp&& run_op) {
  const auto& [order, num_layers, empty] = passage;
  HOCKET_CHECK(order.num_halves == static_cast<int>(halves.size()));
  const int ticks = num_layers + order.lag_max();
  for (int tick = 0; tick < ticks; ++tick)
    for (const Slot& slot : order.slots) {
      const int layer = tick - slot.lag;
      if (layer < 0 || layer >= num_layers) continue;
      Half& half = halves[slot.half];
      if (half.rows.count > 0 || empty == EmptyHalves::played) run_op(layer, slot.op, half);
    }
}

}  // namespace hocket
