// Paged attention for any mix of chunk and decode rows, grouped-query heads, causal.
//
// The order is fixed by absolute key positions, so a query's bits do not depend on how its rows
// were cut: segments of 1024 keys, each from a fresh (m, l, o); inside, softmax blocks of 128 keys,
// ascending:
//   s = canonical(q, k) * scale;  m' = max(m, max s);  alpha = exp(m - m')
//   p = round(exp(s - m')), masked: +0;  l = fma(l, alpha, sum16(p))
//   o = o * alpha, then the canonical k-blocks of 32 keys added
// Segments are merged ascending:
//   m' = max(m, m_next);  a = exp(m - m');  b = exp(m_next - m')
//   l = fma(l_next, b, l * a);  o = fma(o_next, b, o * a)
// and the result is round(o / l + 0), so that a zero is +0.
// Source: docs/contracts/arithmetic.md, "attention".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/kernels/backend.h"
#include "compute/kernels/kv_layout.h"

namespace hocket {

inline constexpr int kSoftmaxBlock = 128;
inline constexpr int kAttentionSegment = 1024;

// What a row's token is to its request. Latent attention computes the two differently
// (latent_attention.h), so a token's role never depends on the batch.
enum class TokenRole : uint8_t { prompt, generated };

// Rows [row_begin, row_begin + num_rows) of a batch are tokens first_position, first_position + 1,
// ... of one sequence, whose tokens [0, first_position + num_rows) stand in `pages`.
struct AttentionSequence {
  int row_begin = 0;
  int num_rows = 0;
  int first_position = 0;
  TokenRole role = TokenRole::prompt;  // of all its rows
  std::span<const PageId> pages;
};

// How the work of one batch (or half) is cut into tasks; made once a step, used by every layer.
// Reuses its storage.
struct AttentionPlan {
  // Some rows of a sequence; or all rows of several sequences whose first pages are the same, which
  // so read those once.
  struct Task {
    int sequence = 0;                       // the first of several
    int row_begin = 0, num_rows = 0;        // inside the sequence; of several: 0, and in all
    int num_members = 1, first_member = 0;  // of several: which of `members`
    int shared_keys = 0;  // that all of them see in the same pages, whole softmax blocks
  };
  std::vector<AttentionSequence> sequences;
  std::vector<Task> tasks;   // each is run once for every KV head, or group of heads of latents
  std::vector<int> members;  // sequences of tasks of several
  int num_workers = 1;       // that share the tasks: no task grows so that some have none

  // Cuts `sequences` into tasks of about equal work. Allocates nothing once reserve() has seen the
  // limits.
  void build(int num_heads, const KvShape& shape);
  void reserve(int max_sequences, int max_rows);
  // The rows of one of a task's num_members sequences.
  Task member(const Task& task, int index) const;
  // Keys that its last row sees, or the longest of several.
  int num_keys(const Task& task) const;
};

// Shapes: q [rows, num_heads * round_up(key_dim, 32)]; out [rows, num_heads * value_dim], both of
// one type, which is the KV element type unless that is int8. kv of kind heads.
struct AttentionCall {
  MatrixView q;
  KvLayer kv;
  const AttentionPlan& plan;
  float scale = 1;
  MatrixView out;
};
// Errors: none; shapes are checked.   Thread: engine; workers take (task, KV head).
// Bits: equal in every body.
void attention(Backend& backend, const AttentionCall& call);
// Scratch one worker needs.
int64_t attention_scratch_bytes(int num_heads, const KvShape& shape);

}  // namespace hocket
