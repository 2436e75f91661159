// The operations of a layer, and which of them must come before which.
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
};
inline constexpr int kNumOps = 10;
std::string_view op_name(Op op);

// What a kind of layer consists of: operations in an order that is legal serially, and their needs.
struct OpGraph {
  std::vector<Op> ops;
  struct Edge {
    Op before, after;
  };
  std::vector<Edge> edges;  // inside one half and layer

  bool has(Op op) const;
};

const OpGraph& moe_graph();
const OpGraph& shared_moe_graph();  // with shared experts
const OpGraph& dense_graph();

}  // namespace hocket
