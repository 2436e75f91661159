// An order of operations: one period of the steady state, as data. In tick t a slot plays layer t -
// `lag`. A slot whose operation the layer does not have is passed over, so one order plays dense
// and MoE layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/overlap/op.h"

namespace hocket {

inline constexpr int kMaxLag = 2;  // the largest Slot::lag

struct Slot {
  uint8_t half = 0;
  Op op = Op::attn_in;
  uint8_t lag = 0;

  bool operator==(const Slot&) const = default;
};
// Returns the slot as text; "b-.combine_wait" is of half b, one layer behind.
std::string slot_name(const Slot& slot);

struct Order {
  std::string name;
  int num_halves = 1;
  std::vector<Slot> slots;
  bool forced_only = false;  // no candidate of the planner, because another order is never slower

  int max_lag() const;
  bool operator==(const Order&) const = default;
};

// The first of the built-in orders: one half, one operation after the other.
const Order& serial_order();

// The first fault that was found in an order: which slot to change, what is wrong, and the remedy.
struct OrderFault {
  int slot = -1;  // index of the slot to change; -1: none of them
  std::string what, fix;
};

// Returns nothing if and only if the order is legal: it has every operation of the graph once for
// every half, each operation follows in time (with the lag) those that it depends on, a layer
// begins after the one before has ended, half b attends after half a has stored its keys, and no
// slot is more than kMaxLag layers behind.
std::optional<OrderFault> find_fault(const Order& order, const OpGraph& graph);
// The same check as a Result. Errors: bad_value, with the name of the order, the slots, and what to
// change.
Result<void> validate(const Order& order, const OpGraph& graph);

}  // namespace hocket
