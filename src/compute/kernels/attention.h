// Paged causal attention with grouped-query heads, for any mix of chunk rows and decode rows.
//
// The order of additions is fixed by absolute key positions, so the bits of a query do not depend
// on how its rows were cut. Keys are taken in segments of 1024, each from a fresh (m, l, o); in a
// segment, in softmax blocks of 128, ascending:
//   s = canonical(q, k) * scale, perhaps soft-capped;  m' = max(m, max s);  alpha = exp(m - m')
//   p = round(exp(s - m')), masked: +0;  l = fma(l, alpha, sum16(p))
//   o = o * alpha, then the canonical k-blocks of 32 keys added
// Segments are merged ascending:
//   m' = max(m, m_next);  a = exp(m - m');  b = exp(m_next - m')
//   l = fma(l_next, b, l * a);  o = fma(o_next, b, o * a)
// A sink joins after the last segment, as one with m = sink, l = 1, o = 0. The result is round(o /
// l
// + 0), so that a zero is +0. Keys that a query does not see, and blocks and segments without a key
// that it sees, change no bit. Source: docs/contracts/arithmetic.md, "attention".
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/kernels/arithmetic/attention_block.h"
#include "compute/kernels/backend.h"
#include "compute/kernels/kv_layout.h"
#include "core/visible_keys.h"

namespace hocket {

inline constexpr int kAttentionSegment = 1024;

// The form in which a row attends to latents: rows of prompts mostly expanded, rows of answers
// absorbed, also if an answer is in a prompt (policy/scheduler/absorbed_rows.h). It must not
// depend on the batch (latent_attention.h).
enum class MlaForm : uint8_t { expanded, absorbed };

// Rows [row_begin, row_begin + num_rows) of a batch are the tokens from first_position on of one
// sequence, whose tokens [0, first_position + num_rows) are stored in `pages`.
struct AttentionSequence {
  int row_begin = 0;
  int num_rows = 0;
  int first_position = 0;
  MlaForm form = MlaForm::expanded;  // the same for all its rows
  std::span<const PageId> pages;
};

// The tasks that the work of one batch (or half) is cut into; built once per step and used by every
// layer. Reuses its storage.
struct AttentionPlan {
  // Either some rows of one sequence, or all rows of several sequences that start with the same
  // pages: one task then reads those pages once for all of them.
  struct Task {
    int sequence = 0;                       // the first member's, if there are several
    int row_begin = 0, num_rows = 0;        // rows of the sequence; several members: 0, and the sum
    int num_members = 1, first_member = 0;  // several: members[first_member, + num_members)
    // Leading keys in pages that all members share, whole softmax blocks.
    int shared_keys = 0;
  };
  std::vector<AttentionSequence> sequences;
  std::vector<Task> tasks;   // run once per KV head, or per group of heads (latents)
  std::vector<int> members;  // sequences of the tasks that have several members
  int num_workers = 1;  // workers that share the tasks; tasks stay small enough for all of them
  // False for layers with a window: their rows see few keys, each its own.
  bool shares_keys = true;

  // Cuts `sequences` into tasks of about equal work. Allocates nothing while the batch stays within
  // the limits given to reserve().
  void build(int num_heads, const KvShape& shape);
  void reserve(int max_sequences, int max_rows);
  // Returns the rows of one member of a task, index < num_members, as a task of its own.
  Task member(const Task& task, int index) const;
  // Returns the end of the keys that the task's last row sees; of several members, the largest.
  int num_keys(const Task& task) const;
  // Returns the first key that any row of the task sees.
  int first_key(const Task& task, const VisibleKeys& visible) const;
};

// Shapes: q [rows, num_heads * round_up(key_dim, 32)]; out [rows, num_heads * value_dim]. Both have
// one type, which is the KV element type unless that is int8. kv has kind heads.
struct AttentionCall {
  MatrixView q;
  KvLayer kv;
  const AttentionPlan& plan;
  float scale = 1;
  VisibleKeys visible = {};
  float soft_cap = 0;                 // s = cap * tanh(s / cap); 0: scores have no cap
  std::span<const float> sinks = {};  // [num_heads] a logit without a value; or empty
  MatrixView out;
};
// Errors: none; shapes are checked.   Thread: engine; workers take (task, KV head).
// Bits: equal in every body.
void attention(Backend& backend, const AttentionCall& call);
// Returns the scratch bytes that one worker needs.
int64_t attention_scratch_bytes(int num_heads, const KvShape& shape);

}  // namespace hocket
