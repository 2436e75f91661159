// An order of operations: one period of the steady state, as data. `lag` says how many layers a
// slot is behind. Slots whose operation a layer does not have are passed over, so one order plays
// dense and MoE layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/overlap/op.h"

namespace hocket {

struct Slot {
  uint8_t half = 0;
  Op op = Op::attn_in;
  uint8_t lag = 0;
};

struct Order {
  std::string name;
  int num_halves = 1;
  std::vector<Slot> slots;

  int lag_max() const;
};

// One half, one operation after the other.
const Order& serial_order();
// Two halves in turn: while one half's rows travel the other computes (dispatch of a under
// attention of b, ...).
const Order& two_batch_order();

// Legal iff every operation of every half stands in it once, each need of the graph is met earlier
// in time (lag counted), a layer begins after the one before has ended, and half b attends after
// half a has stored its keys. Errors: bad_value, naming the slots.
Result<void> validate(const Order& order, const OpGraph& graph);

}  // namespace hocket
