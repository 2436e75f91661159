// Checks in tests that an order meets the needs of operations while it is played. It knows nothing
// of ticks and lags.
#pragma once

#include <array>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "compute/overlap/executor.h"

namespace hocket::testing {

// Plays an order over layers of these kinds. Returns the first operation that came before one that
// it depends on, or twice, or never; empty if there is none.
inline std::string late_when_played(const Order& order, std::span<const OpGraph* const> layers) {
  std::vector<Half> halves(order.num_halves);
  for (int i = 0; i < order.num_halves; ++i) halves[i] = Half{.index = i, .rows = {3 * i, 3}};
  std::set<std::tuple<int, int, Op>> done;
  std::string late;
  const auto say = [&](int layer, Op op, int half, std::string_view what) {
    if (late.empty())
      late = fmt::format("{} of layer {}: {}", slot_name({static_cast<uint8_t>(half), op}), layer,
                         what);
  };
  play({order, static_cast<int>(layers.size())}, halves, [&](int layer, Op op, Half& half) {
    const OpGraph& graph = *layers[layer];
    if (!graph.has(op)) return;
    for (const OpGraph::Edge& edge : graph.edges)
      if (edge.after == op && !done.contains({half.index, layer, edge.before}))
        say(layer, op, half.index, op_name(edge.before));
    if (op == Op::attn_in && layer > 0)
      for (const Op before : layers[layer - 1]->ops)
        if (!done.contains({half.index, layer - 1, before}))
          say(layer, op, half.index, "the layer before");
    if (op == Op::attn_core && half.index > 0 &&
        !done.contains({half.index - 1, layer, Op::attn_core}))
      say(layer, op, half.index, "keys and states of the half before");
    if (!done.insert({half.index, layer, op}).second) say(layer, op, half.index, "twice");
  });
  for (int half = 0; half < order.num_halves; ++half)
    for (int layer = 0; layer < std::ssize(layers); ++layer)
      for (const Op op : layers[layer]->ops)
        if (!done.contains({half, layer, op})) say(layer, op, half, "never");
  return late;
}

}  // namespace hocket::testing
