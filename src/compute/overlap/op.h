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

// The kinds of a layer's attention (compute/layers): over all keys; over a window of them; over
// latents; or a delta net in its place.
enum class AttentionKind : uint8_t { full, window, latent, linear };
inline constexpr size_t kNumAttentionKinds = 4;
// Says if the time of attn_core grows with the keys.
constexpr bool reads_keys(AttentionKind kind) {
  return kind != AttentionKind::linear;
}

// A stage has a time of its own: an operation, and attn_in and attn_core once for each kind that a
// model has. These kinds are numbered from 0, and the operations of kind 0 come first:
//
//   0 .. kNumOps - 1   the operations; attn_in and attn_core of kind 0
//   then for each kind 1, 2, 3:  attn_in, attn_core
//
// So in a model of one kind the stages are the operations.
struct Stage {
  Op op = Op::attn_in;
  int kind = 0;  // index in LayerKinds; 0 for all operations but attn_in and attn_core
};
inline constexpr size_t kNumStages = kNumOps + 2 * (kNumAttentionKinds - 1);
constexpr bool is_attention(Op op) {
  return op == Op::attn_in || op == Op::attn_core;
}
constexpr size_t index_of(const Stage& stage) {
  if (stage.kind == 0 || !is_attention(stage.op)) return static_cast<size_t>(stage.op);
  return kNumOps + 2 * static_cast<size_t>(stage.kind - 1) + (stage.op == Op::attn_core ? 1 : 0);
}
constexpr Stage stage_at(size_t index) {
  if (index < kNumOps) return {static_cast<Op>(index), 0};
  const auto more = static_cast<int>(index - kNumOps);
  return {more % 2 == 0 ? Op::attn_in : Op::attn_core, 1 + more / 2};
}

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
