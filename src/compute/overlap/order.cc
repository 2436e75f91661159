#include "compute/overlap/order.h"

#include <algorithm>
#include <optional>

namespace hocket {
namespace {

Order make_serial() {
  Order order{"serial", 1, {}};
  for (int op = 0; op < kNumOps; ++op) order.slots.push_back({0, static_cast<Op>(op), 0});
  return order;
}

Order make_two_batch() {
  constexpr uint8_t a = 0, b = 1;
  return {"two-batch",
          2,
          {{a, Op::attn_in, 0},
           {a, Op::attn_core, 0},
           {a, Op::mlp, 0},
           {a, Op::gate, 0},
           {a, Op::dispatch_start, 0},
           {b, Op::attn_in, 0},
           {b, Op::attn_core, 0},
           {b, Op::mlp, 0},
           {b, Op::gate, 0},
           {a, Op::shared, 0},
           {a, Op::dispatch_wait, 0},
           {b, Op::dispatch_start, 0},
           {a, Op::experts, 0},
           {a, Op::combine_start, 0},
           {b, Op::shared, 0},
           {b, Op::dispatch_wait, 0},
           {b, Op::experts, 0},
           {a, Op::combine_wait, 0},
           {b, Op::combine_start, 0},
           {b, Op::combine_wait, 0}}};
}

// When a slot of layer 0 runs: tick, then place inside the tick. Layer l runs l ticks later.
struct When {
  int tick = 0, place = 0;
  auto operator<=>(const When&) const = default;
};

std::optional<When> find(const Order& order, int half, Op op) {
  for (size_t i = 0; i < order.slots.size(); ++i)
    if (order.slots[i].half == half && order.slots[i].op == op)
      return When{order.slots[i].lag, static_cast<int>(i)};
  return std::nullopt;
}

std::string slot_name(int half, Op op) {
  return fmt::format("{}.{}", static_cast<char>('a' + half), op_name(op));
}

Result<void> validate_half(const Order& order, const OpGraph& graph, int half) {
  for (Op op : graph.ops) {
    const auto count = std::ranges::count_if(
        order.slots, [&](const Slot& s) { return s.half == half && s.op == op; });
    if (count != 1)
      return fail(ErrorCode::bad_value, "order {}: {} stands {} times, must stand once", order.name,
                  slot_name(half, op), count);
  }
  for (const OpGraph::Edge& edge : graph.edges)
    if (*find(order, half, edge.before) > *find(order, half, edge.after))
      return fail(ErrorCode::bad_value, "order {}: {} needs {} before it", order.name,
                  slot_name(half, edge.after), slot_name(half, edge.before));
  When next_layer = *find(order, half, graph.ops.front());
  next_layer.tick += 1;
  if (*find(order, half, graph.ops.back()) > next_layer)
    return fail(ErrorCode::bad_value, "order {}: {} of the next layer comes before {}", order.name,
                slot_name(half, graph.ops.front()), slot_name(half, graph.ops.back()));
  return {};
}

}  // namespace

int Order::lag_max() const {
  int lag = 0;
  for (const Slot& slot : slots) lag = std::max<int>(lag, slot.lag);
  return lag;
}

const Order& serial_order() {
  static const Order order = make_serial();
  return order;
}

const Order& two_batch_order() {
  static const Order order = make_two_batch();
  return order;
}

Result<void> validate(const Order& order, const OpGraph& graph) {
  for (int half = 0; half < order.num_halves; ++half)
    HOCKET_TRY_VOID(validate_half(order, graph, half));
  for (int half = 1; half < order.num_halves; ++half)
    if (*find(order, half - 1, Op::attn_in) > *find(order, half, Op::attn_core))
      return fail(ErrorCode::bad_value, "order {}: {} reads keys that {} has not stored yet",
                  order.name, slot_name(half, Op::attn_core), slot_name(half - 1, Op::attn_in));
  return {};
}

}  // namespace hocket
