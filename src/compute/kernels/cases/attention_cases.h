// Batches for attention: shapes, sequences and numbers, one list for tests, fuzzing and benches.
#pragma once

#include <algorithm>
#include <numeric>

#include "compute/kernels/attention.h"
#include "compute/kernels/cases/linear_cases.h"

namespace hocket::cases {

struct AttentionCase {
  int num_heads, kv_heads, dim, page_tokens;
  // Rows of each sequence and the tokens before them.
  struct Sequence {
    int num_rows, first_position;
  };
  std::vector<Sequence> sequences;
};

inline std::vector<AttentionCase> attention_cases() {
  return {
      {4, 2, 16, 32, {{5, 0}}},
      {4, 2, 32, 32, {{1, 0}, {1, 1}, {1, 31}, {1, 32}, {1, 127}, {1, 128}, {1, 300}}},
      {16, 4, 64, 32, {{70, 0}, {1, 63}, {17, 40}, {1, 1022}, {3, 1022}}},
      {8, 8, 128, 64, {{33, 95}, {1, 200}}},
      {4, 2, 80, 128, {{40, 100}, {1, 1}}},
      {4, 4, 32, 96, {{9, 120}, {30, 0}}},
      {4, 2, 16, 64, {{1, 2299}, {20, 1015}, {2, 2046}}},
      {16, 1, 64, 32, {{6, 1020}, {1, 50}}},
  };
}

// Pages in random order, filled with noise everywhere a token may stand, and the queries of all
// rows.
template <class T>
struct AttentionBatch {
  KvLayer kv;
  Buffer pages;
  std::vector<std::vector<PageId>> page_lists;
  std::vector<AttentionSequence> sequences;
  std::vector<T> q;
  int num_rows = 0, num_heads = 0;
  float scale = 1;

  int64_t q_cols() const { return num_heads * round_up(kv.shape.key_dim, kBlockK); }
  int64_t out_cols() const { return int64_t{num_heads} * kv.shape.value_dim; }
  MatrixView q_view() { return MatrixView::of(View<T>(q.data(), num_rows, q_cols())); }
  // One token's key and value, written where the layout says.
  void write_token(PageId page, int offset, int head, std::mt19937& random) {
    std::normal_distribution<float> normal;
    for (int d = 0; d < kv.shape.key_dim; ++d)
      kv.keys<T>(page, head)[kv.shape.key_offset(offset, d)] = from_float<T>(normal(random));
    for (int d = 0; d < kv.shape.value_dim; ++d)
      kv.values<T>(page, head)[kv.shape.value_offset(offset, d)] = from_float<T>(normal(random));
  }
};

template <class T>
AttentionBatch<T> attention_batch(const AttentionCase& c, uint32_t seed) {
  std::mt19937 random(seed);
  AttentionBatch<T> b;
  b.num_heads = c.num_heads;
  b.scale = 1 / std::sqrt(static_cast<float>(c.dim));
  b.kv.shape = {dtype_of<T>, c.kv_heads, c.dim, c.dim, c.page_tokens};
  int num_pages = 0;
  for (const auto& s : c.sequences)
    num_pages += (s.first_position + s.num_rows + c.page_tokens - 1) / c.page_tokens;
  b.pages = *Buffer::allocate(num_pages * b.kv.shape.page_bytes());
  b.kv.data = b.pages.data();
  std::vector<int> order(num_pages);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  for (int page = 0; page < num_pages; ++page)
    for (int head = 0; head < c.kv_heads; ++head)
      for (int token = 0; token < c.page_tokens; ++token)
        b.write_token(PageId{page}, token, head, random);
  auto next = order.begin();
  for (const auto& s : c.sequences) {
    const int pages = (s.first_position + s.num_rows + c.page_tokens - 1) / c.page_tokens;
    auto& list = b.page_lists.emplace_back();
    for (int i = 0; i < pages; ++i) list.push_back(PageId{*next++});
    b.sequences.push_back({b.num_rows, s.num_rows, s.first_position, {}});
    b.num_rows += s.num_rows;
  }
  for (size_t s = 0; s < b.sequences.size(); ++s) b.sequences[s].pages = b.page_lists[s];
  b.q.resize(b.num_rows * b.q_cols());
  std::normal_distribution<float> normal(0, 2);
  const int64_t padded = round_up(c.dim, kBlockK);
  for (size_t i = 0; i < b.q.size(); ++i)
    b.q[i] = from_float<T>(static_cast<int64_t>(i) % padded < c.dim ? normal(random) : 0.0f);
  return b;
}

}  // namespace hocket::cases
