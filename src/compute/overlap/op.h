// The operations of a layer, and their dependencies.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace hocket {

enum class Op : uint8_t {
  attn_in,         // norm, projections, rotation, keys and values into their pages
  attn_core,       // attention, output projection, residual
  mlp,             // dense layers: norm, MLP, residual
  gate,            // norm, expert choice
  dispatch_start,  // rows leave for their experts
  shared,          // shared experts; anywhere between gate and combine_wait
  dispatch_wait,   // rows have arrived
  experts,
  combine_start,  // results leave for their tokens
  combine_wait,   // weighted sums, residual
  delta_core,     // attn_core in layers with a delta net, where its time is booked apart
};
inline constexpr int kNumOps = 10;              // those of graphs and orders
inline constexpr int kNumBooked = kNumOps + 1;  // those that have times of their own
std::string_view op_name(Op op);

// The operations of one kind of layer, in a sequence that is legal when they are played one by one,
// and their dependencies.
struct OpGraph {
  std::vector<Op> ops;
  struct Edge {
    Op before, after;
  };
  std::vector<Edge> edges;  // `after` needs `before`, in the same half and layer

  bool has(Op op) const;
};

const OpGraph& moe_graph();
const OpGraph& shared_moe_graph();  // MoE layer with shared experts
const OpGraph& dense_graph();

}  // namespace hocket
