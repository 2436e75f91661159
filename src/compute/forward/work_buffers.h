// All memory of a forward pass, planned at start for the largest step. The rows of a half are a
// range of rows in every matrix.
//
//   residual                    fp32, the stream that layers add to
//   joined                      only modules for multi-token prediction
//   model_rows                  only several modules, which all join the model's rows
//   normed                      its norm, operand of products
//   qkv, q_heads                fp32 projections
//   q, attended                 operand and result of attention
//   q_latent, *_absorbed        only latent attention
//   delta_*                     only gated delta nets
//   gate_logits, expert_*       routing
//   leaving                     the rows as they leave for experts
//   expert_x, middle, expert_y  rows sorted by expert
//   exchange                    lists of rows that travel between ranks
//   shared_out                  result of the shared experts
//   hidden                      final norm of the rows that want logits
//   logits                      logits of one block of these rows
#pragma once

#include <cstdint>
#include <vector>

#include "compute/forward/exchange_buffers.h"
#include "compute/kernels/choose.h"
#include "compute/kernels/delta_state.h"
#include "compute/kernels/kv_layout.h"
#include "compute/tensor/buffer.h"
#include "core/model_config.h"

namespace hocket {

struct WorkLimits {
  int max_rows = 0;         // rows of one step
  int max_output_rows = 0;  // those of them that want logits
  int max_logits_rows = 0;  // rows of a block: logits are computed block by block
  int max_kept_rows = 0;    // rows of the steps before that modules join once more
  ExchangeLimits exchange = {};
  bool int8_dispatch = false;  // rows are rounded to int8 on their way to experts
  bool int8_combine = false;   // so are the sums of their results on the way back
};

// Return the columns of a layer's first projection, and of attention's result: the most of any kind
// of layers.
int qkv_columns(const ModelConfig& model);
int attended_columns(const ModelConfig& model);
// Returns the geometry of the pages of one kind of attention; of the layers that have pages and no
// window, and of those with a window (ModelConfig::is_windowed).
KvShape kv_shape_of(const AttentionConfig& attention, DType dtype, int page_tokens);
struct KvShapes {
  std::vector<KvShape> full, windowed;
};
KvShapes kv_shapes_apart(const ModelConfig& model, DType dtype, int page_tokens);
// Sets the parts of `need` that depend on the kinds of attention and on their pages of `kv_dtype`.
void set_attention_need(const ModelConfig& model, DType kv_dtype, int page_tokens,
                        ScratchNeed& need);
// Returns the geometry of the states of layers with a delta net (DeltaShape::undone_rows).
DeltaShape delta_shape_of(const ModelConfig& model, DType dtype, int undone_rows = 0);

struct WorkBuffers {
  // Allocates all buffers. Errors: out_of_memory.
  static Result<WorkBuffers> create(const ModelConfig& model, DType dtype, WorkLimits limits);
  // Returns the bytes that create() would take.
  static int64_t bytes_for(const ModelConfig& model, DType dtype, WorkLimits limits);

  WorkLimits limits;
  View<float> residual;              // [rows, hidden]
  View<float> results;               // [rows, hidden] to which experts add: residual; with
                                     // ModelConfig::result_norms a place before the norm
  MatrixView joined;                 // [rows, 2 * hidden] norms of a token and a hidden row
  View<float> model_rows;            // [rows + max_kept_rows, hidden] the model's residual rows
  MatrixView normed;                 // [rows, hidden]
  MatrixView shared_normed;          // [rows, hidden]; with result_norms: for the shared experts
  View<float> cos, sin;              // [rows, rotary / 2]
  View<float> local_cos, local_sin;  // the same of ModelConfig::local_rope; local layers only
  View<float> query_factors;         // [rows, 1]; only where queries are scaled by their position
  View<float> qkv;                   // [rows, qkv_columns(model)]
  MatrixView q;                      // [rows, heads * round_up(head_dim, 32)]
  MatrixView attended;               // [rows, heads * value_dim]
  View<float> head_gates;            // [rows, heads]; ModelConfig::head_gates only
  View<float> delta_gates;           // [rows, gate_columns]; delta nets only, as the next two. With
                                     // channel_decay 2 * key_dim columns behind them
  MatrixView delta_narrow;           // [rows, key_dim]; with channel_decay only
  MatrixView delta_out;              // [rows, value columns]
  MatrixView q_latent;               // [rows, q_rank]; only where queries have a rank
  View<float> q_heads;               // [rows, heads * head_dim]; only where queries have a rank
  MatrixView q_absorbed;             // [rows, heads * kv row elements]; latents only
  MatrixView y_absorbed;             // [rows, heads * round_up(kv_rank, 32)]
  View<float> mlp_out;               // [rows, hidden]; dense layers only
  View<float> shared_out;            // [rows, hidden]; shared experts only
  View<float> shared_gates;          // [rows, 1]; shared experts with a gate only
  View<float> gate_logits;           // [rows, experts]
  View<int32_t> expert_ids, expert_position;  // [rows, k]
  View<float> expert_weights;                 // [rows, k]
  MatrixView weighted;                        // [rows, hidden]; MoeConfig::weighted_inputs only
  MatrixView leaving;                         // [rows, hidden]: normed or weighted; or, of int8,
                                              // [rows, quantized_columns(hidden)]
  int32_t* sorted_rows = nullptr;             // [rows * k] token row of each expert row
  int32_t* expert_offsets = nullptr;          // [2 halves][experts + 1]
  MatrixView expert_x, expert_y;              // [rows * k, hidden], or as many rows as may arrive
  ExchangeBuffers exchange;                   // experts on several ranks only
  MatrixView middle;                          // one flat row; middle_rows() cuts it
  View<float> output_residual;                // [output_rows, hidden]
  MatrixView hidden;                          // [output_rows, hidden]
  View<float> logits;                         // [logits_rows, vocabulary]

  // Returns rows [begin, begin + count) of the middle of an MLP that is `intermediate` wide.
  MatrixView middle_rows(int64_t begin, int64_t count, int intermediate) const;

 private:
  void lay_out(const ModelConfig& model, DType dtype, Layout& layout);
  void lay_out_attention(const ModelConfig& model, DType dtype, Layout& layout);
  Buffer memory_;
};

}  // namespace hocket
