#include "compute/overlap/order.h"

#include <algorithm>

#include "compute/forward/half.h"

namespace hocket {
namespace {

// The time at which a slot plays layer 0: the tick, then the place in the period. It plays layer l
// l ticks later.
struct SlotTime {
  int tick = 0, place = 0;
  auto operator<=>(const SlotTime&) const = default;
};

std::string op_of(int half, Op op) {
  return slot_name({static_cast<uint8_t>(half), op, 0});
}

// Checks one order against one graph. Each check relies on the ones above it: find_fault() calls
// them in this sequence.
class OrderChecker {
 public:
  OrderChecker(const Order& order, const OpGraph& graph) : order_(order), graph_(graph) {}

  std::optional<OrderFault> slots_are_sound() const {
    for (int i = 0; i < std::ssize(order_.slots); ++i) {
      const Slot& slot = order_.slots[i];
      if (slot.half >= order_.num_halves)
        return OrderFault{i,
                          fmt::format("{} is of half {}, but there {} {}", slot_name(slot),
                                      static_cast<char>('a' + slot.half),
                                      order_.num_halves == 1 ? "is" : "are", order_.num_halves),
                          fmt::format("halves: {}, or take it out", slot.half + 1)};
      if (slot.lag > kMaxLag)
        return OrderFault{
            i,
            fmt::format("{} is {} layers behind, {} at most", slot_name(slot), slot.lag, kMaxLag),
            fmt::format("{}", slot_name({slot.half, slot.op, kMaxLag}))};
    }
    return std::nullopt;
  }

  std::optional<OrderFault> occurs_once(int half, Op op) const {
    const auto same = [&](const Slot& s) { return s.half == half && s.op == op; };
    const auto count = std::ranges::count_if(order_.slots, same);
    if (count == 1) return std::nullopt;
    const std::string name = op_of(half, op);
    const std::string what = fmt::format("{} occurs {} times, must occur once", name, count);
    if (count > 1) {
      const auto first = std::ranges::find_if(order_.slots, same);
      const auto second = std::find_if(first + 1, order_.slots.end(), same);
      return OrderFault{static_cast<int>(second - order_.slots.begin()), what,
                        fmt::format("take {} out", slot_name(*second))};
    }
    const int before = slot_of_need(half, op);
    if (before < 0) return OrderFault{-1, what, fmt::format("put {} first", name)};
    const std::string need = slot_name(order_.slots[before]);
    const Op start = op == Op::dispatch_wait ? Op::dispatch_start : Op::combine_start;
    if ((op == Op::dispatch_wait || op == Op::combine_wait) && index(half, start) >= 0)
      return OrderFault{before, fmt::format("{} has no wait: {}", named(half, start), what),
                        fmt::format("put {} behind {}", name, need)};
    return OrderFault{before, what, fmt::format("put {} behind {}", name, need)};
  }

  std::optional<OrderFault> needs_are_met(int half) const {
    for (const OpGraph::Edge& edge : graph_.edges)
      if (when(half, edge.before) > when(half, edge.after))
        return OrderFault{
            index(half, edge.after),
            fmt::format("{} needs {} before it", named(half, edge.after), named(half, edge.before)),
            fmt::format("move {} behind {}", named(half, edge.after), named(half, edge.before))};
    return std::nullopt;
  }

  std::optional<OrderFault> layers_follow(int half) const {
    const Op first = graph_.ops.front(), last = graph_.ops.back();
    SlotTime next = when(half, first);
    next.tick += 1;
    if (when(half, last) <= next) return std::nullopt;
    return OrderFault{
        index(half, last),
        fmt::format("{} of the next layer comes before {}", named(half, first), named(half, last)),
        fmt::format("move {} before {}, or write it with one '-' less", named(half, last),
                    named(half, first))};
  }

  std::optional<OrderFault> earlier_half_leads(int half) const {
    if (when(half - 1, Op::attn_core) < when(half, Op::attn_core)) return std::nullopt;
    const std::string reader = named(half, Op::attn_core), writer = named(half - 1, Op::attn_core);
    return OrderFault{
        index(half, Op::attn_core),
        fmt::format("{} needs the keys and states of {}, which comes later", reader, writer),
        fmt::format("move {} behind {}, or write one '-' more at all slots of {}", reader, writer,
                    static_cast<char>('a' + half))};
  }

 private:
  int index(int half, Op op) const {
    const auto found = std::ranges::find_if(
        order_.slots, [&](const Slot& s) { return s.half == half && s.op == op; });
    return found == order_.slots.end() ? -1 : static_cast<int>(found - order_.slots.begin());
  }
  SlotTime when(int half, Op op) const {
    const int place = index(half, op);
    return {order_.slots[place].lag, place};
  }
  std::string named(int half, Op op) const { return slot_name(order_.slots[index(half, op)]); }
  // Returns the slot of the latest operation that `op` needs; -1 if there is none.
  int slot_of_need(int half, Op op) const {
    int latest = -1;
    for (const OpGraph::Edge& edge : graph_.edges) {
      const int place = edge.after == op ? index(half, edge.before) : -1;
      if (place >= 0 && (latest < 0 || SlotTime{order_.slots[place].lag, place} >
                                           SlotTime{order_.slots[latest].lag, latest}))
        latest = place;
    }
    return latest;
  }

  const Order& order_;
  const OpGraph& graph_;
};

}  // namespace

std::string slot_name(const Slot& slot) {
  return fmt::format("{}{}.{}", static_cast<char>('a' + slot.half), std::string(slot.lag, '-'),
                     op_name(slot.op));
}

int Order::max_lag() const {
  int lag = 0;
  for (const Slot& slot : slots) lag = std::max<int>(lag, slot.lag);
  return lag;
}

std::optional<OrderFault> find_fault(const Order& order, const OpGraph& graph) {
  if (order.num_halves < 1 || order.num_halves > kMaxHalves)
    return OrderFault{-1, fmt::format("it has {} halves", order.num_halves),
                      fmt::format("halves: 1 to {}", kMaxHalves)};
  const OrderChecker checker(order, graph);
  if (auto fault = checker.slots_are_sound()) return fault;
  for (int half = 0; half < order.num_halves; ++half) {
    for (const Op op : graph.ops)
      if (auto fault = checker.occurs_once(half, op)) return fault;
    if (auto fault = checker.needs_are_met(half)) return fault;
    if (auto fault = checker.layers_follow(half)) return fault;
  }
  for (int half = 1; half < order.num_halves; ++half)
    if (auto fault = checker.earlier_half_leads(half)) return fault;
  return std::nullopt;
}

Result<void> validate(const Order& order, const OpGraph& graph) {
  auto fault = find_fault(order, graph);
  if (!fault) return {};
  return fail(error(ErrorCode::bad_value, "order {}: {}", order.name, fault->what)
                  .with_fix(std::move(fault->fix)));
}

}  // namespace hocket
