// All memory of a forward pass, planned at start for the largest step. Rows of a half are a range
// of rows of every matrix.
//
//   residual                    fp32, the stream that layers add to
//   normed                      its norm, operand of products
//   qkv                         fp32 projections
//   q, attended                 operand and result of attention
//   gate_logits, expert_*       routing
//   expert_x, middle, expert_y  rows sorted by expert
//   hidden                      final norm of the rows that want logits
//   logits                      of a block of them
#pragma once

#include <cstdint>

#include "compute/tensor/buffer.h"
#include "core/model_config.h"

namespace hocket {

struct WorkLimits {
  int max_rows = 0;         // of one step
  int max_output_rows = 0;  // of those, the ones that want logits
  int max_logits_rows = 0;  // logits are computed in blocks of so many
};

struct WorkBuffers {
  // Errors: out_of_memory.
  static Result<WorkBuffers> create(const ModelConfig& model, DType dtype, WorkLimits limits);
  // What create() would take.
  static int64_t bytes_for(const ModelConfig& model, DType dtype, WorkLimits limits);

  WorkLimits limits;
  View<float> residual;                       // [rows, hidden]
  MatrixView normed;                          // [rows, hidden]
  View<float> cos, sin;                       // [rows, rotary / 2]
  View<float> qkv;                            // [rows, (heads + 2 kv) * head_dim]
  MatrixView q;                               // [rows, heads * round_up(head_dim, 32)]
  MatrixView attended;                        // [rows, heads * head_dim]
  View<float> mlp_out;                        // [rows, hidden]; dense layers only
  View<float> gate_logits;                    // [rows, experts]
  View<int32_t> expert_ids, expert_position;  // [rows, k]
  View<float> expert_weights;                 // [rows, k]
  int32_t* sorted_rows = nullptr;             // [rows * k] token row of each expert row
  int32_t* expert_offsets = nullptr;          // [2 halves][experts + 1]
  MatrixView expert_x, expert_y;              // [rows * k, hidden]
  MatrixView middle;                          // one flat row; middle_rows() cuts it
  View<float> output_residual;                // [output_rows, hidden]
  MatrixView hidden;                          // [output_rows, hidden]
  View<float> logits;                         // [logits_rows, vocabulary]

  // Rows [begin, begin + count) of the middle of an MLP that is `intermediate` wide.
  MatrixView middle_rows(int64_t begin, int64_t count, int intermediate) const;

 private:
  void lay_out(const ModelConfig& model, DType dtype, Layout& layout);
  Buffer memory_;
};

}  // namespace hocket
