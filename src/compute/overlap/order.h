// An order of operations: one period of the steady state, as data. `lag` says how many layers a
// slot is behind. Slots whose operation a layer does not have are passed over, so one order plays
// dense and MoE layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/overlap/op.h"

namespace hocket {

inline constexpr int kMaxLag = 2;  // layers that a slot may be behind

struct Slot {
  uint8_t half = 0;
  Op op = Op::attn_in;
  uint8_t lag = 0;

  bool operator==(const Slot&) const = default;
};
// "b-.combine_wait": of half b, one layer behind.
std::string slot_name(const Slot& slot);

struct Order {
  std::string name;
  int num_halves = 1;
  std::vector<Slot> slots;

  int lag_max() const;
  bool operator==(const Order&) const = default;
};

// One half, one operation after the other: the first of the built-in orders.
const Order& serial_order();

// What is wrong with an order, and where.
struct OrderFault {
  int slot = -1;  // index of the one to change; -1: none of them
  std::string what, fix;
};

// Nothing iff every operation of the graph stands in it once for every half, each need of the graph
// is met earlier in time (lag counted), a layer begins after the one before has ended, half b
// attends after half a has stored its keys, and no slot is more than kMaxLag layers behind.
std::optional<OrderFault> find_fault(const Order& order, const OpGraph& graph);
// The same. Errors: bad_value, with the name of the order and the slots, and what to change.
Result<void> validate(const Order& order, const OpGraph& graph);

}  // namespace hocket
