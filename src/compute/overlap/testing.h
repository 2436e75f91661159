// Orders for tests that play or time them.
#pragma once

#include <algorithm>
#include <array>
#include <random>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "compute/overlap/order_table.h"
#include "compute/overlap/order_yaml.h"

namespace hocket::testing {

inline const OrderTable& table() {
  return OrderTable::builtin();
}

inline const Order& order_named(std::string_view name) {
  const int index = OrderTable::builtin().find(name);
  HOCKET_CHECK(index >= 0);
  return OrderTable::builtin().at(index);
}

// Returns any legal order of two halves, not only reasonable ones: an operation may be anywhere
// between what it needs and what needs it, the period is cut anywhere, and half b is up to two
// layers behind.
inline Order random_order(std::mt19937& random) {
  using Ops = std::vector<Op>;
  const auto below = [&](size_t n) { return random() % n; };
  const auto insert_between = [&](Ops& ops, Op op, Op from, Op to) {
    const auto begin = std::ranges::find(ops, from) + 1;
    const auto end = to == Op::attn_in ? ops.end() : std::ranges::find(ops, to);
    ops.insert(begin + static_cast<std::ptrdiff_t>(below(end - begin + 1)), op);
  };
  while (true) {
    std::array<Ops, 2> layer;  // the operations of each half, from attn_in on
    for (Ops& ops : layer) {
      ops = moe_graph().ops;
      insert_between(ops, Op::shared, Op::gate, Op::combine_wait);
      insert_between(ops, Op::mlp, Op::attn_core, Op::attn_in);
    }
    std::vector<uint8_t> halves(size_t{2} * kNumOps, 0);
    std::fill_n(halves.begin(), kNumOps, 1);
    std::ranges::shuffle(halves, random);
    // The operation of its layer that each half plays first in the period, and how many layers it
    // is behind.
    std::array<size_t, 2> next = {below(kNumOps), below(kNumOps)};
    std::array<int, 2> lag = {static_cast<int>(below(2)), static_cast<int>(below(3))};
    for (int half = 0; half < 2; ++half) lag[half] += next[half] > 0 ? 1 : 0;
    Order order{"random", 2, {}};
    for (const uint8_t half : halves) {
      order.slots.push_back({half, layer[half][next[half]], static_cast<uint8_t>(lag[half])});
      if (++next[half] == kNumOps) {
        next[half] = 0;
        --lag[half];
      }
    }
    const auto is_legal = [&](const OpGraph* graph) { return !find_fault(order, *graph); };
    if (is_legal(&shared_moe_graph()) && is_legal(&dense_graph())) return order;
  }
}

// Returns such an order in which each transfer starts right behind what makes its rows, and is
// waited for right before what needs them.
inline Order tight_order(std::mt19937& random) {
  const Order loose = random_order(random);
  Order tight{"tight", 2, {}};
  for (const Slot& slot : loose.slots) {
    const auto add = [&](Op op, int lag) {
      tight.slots.push_back({slot.half, op, static_cast<uint8_t>(lag)});
    };
    switch (slot.op) {
      case Op::attn_in:
        add(Op::combine_wait, slot.lag + 1), add(Op::attn_in, slot.lag);
        break;
      case Op::gate:
        add(Op::gate, slot.lag), add(Op::dispatch_start, slot.lag);
        break;
      case Op::experts:
        add(Op::dispatch_wait, slot.lag), add(Op::experts, slot.lag);
        add(Op::combine_start, slot.lag);
        break;
      case Op::dispatch_start:
      case Op::dispatch_wait:
      case Op::combine_start:
      case Op::combine_wait:
        break;
      default:
        add(slot.op, slot.lag);
    }
  }
  return std::ranges::any_of(tight.slots, [](const Slot& s) { return s.lag > kMaxLag; })
             ? tight_order(random)
             : tight;
}

}  // namespace hocket::testing
