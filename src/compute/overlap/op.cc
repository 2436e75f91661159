#include "compute/overlap/op.h"

#include <algorithm>

namespace hocket {

std::string_view op_name(Op op) {
  static constexpr std::array<std::string_view, kNumBooked> kNames = {
      "attn_in",       "attn_core", "mlp",           "gate",         "dispatch_start", "shared",
      "dispatch_wait", "experts",   "combine_start", "combine_wait", "delta_core"};
  return kNames[static_cast<size_t>(op)];
}

bool OpGraph::has(Op op) const {
  return std::ranges::find(ops, op) != ops.end();
}

namespace {

// Makes a graph in which each operation needs the one before it.
OpGraph chain(std::vector<Op> ops) {
  OpGraph graph{std::move(ops), {}};
  for (size_t i = 1; i < graph.ops.size(); ++i)
    graph.edges.push_back({graph.ops[i - 1], graph.ops[i]});
  return graph;
}

}  // namespace

const OpGraph& moe_graph() {
  static const OpGraph graph =
      chain({Op::attn_in, Op::attn_core, Op::gate, Op::dispatch_start, Op::dispatch_wait,
             Op::experts, Op::combine_start, Op::combine_wait});
  return graph;
}

const OpGraph& shared_moe_graph() {
  static const OpGraph graph = [] {
    OpGraph made = moe_graph();
    made.ops.insert(std::ranges::find(made.ops, Op::dispatch_wait), Op::shared);
    made.edges.push_back({Op::gate, Op::shared});
    made.edges.push_back({Op::shared, Op::combine_wait});
    return made;
  }();
  return graph;
}

const OpGraph& dense_graph() {
  static const OpGraph graph = chain({Op::attn_in, Op::attn_core, Op::mlp});
  return graph;
}

}  // namespace hocket
