// Batches for attention: shapes, sequences and numbers, one list for tests, fuzzing and benches.
#pragma once

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

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
  int value_dim = 0;  // 0: as dim
  VisibleKeys visible = {};
  float soft_cap = 0;
  bool sinks = false;
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
      {4, 2, 16, 1, {{1, 0}, {5, 30}, {1, 140}}},
      {8, 2, 80, 16, {{40, 100}, {1, 1}, {1, 1022}, {3, 1022}}},
      // Values of another size; a sink; a cap that acts.
      {4, 2, 24, 32, {{70, 90}, {1, 0}, {1, 1030}}, 16, {}, 0, true},
      {16, 2, 64, 64, {{9, 120}, {1, 300}}, 32, {}, 0.5f},
      // Windows of one key, of parts of a block, over the border of a segment, of whole blocks, and
      // longer than the sequence.
      {4, 4, 16, 32, {{40, 100}, {1, 0}}, 0, {.window = 1}},
      {16, 2, 32, 32, {{70, 0}, {70, 90}, {1, 63}, {3, 1100}, {9, 1020}}, 0, {.window = 9}},
      {8, 1, 64, 64, {{200, 0}, {1, 1150}, {70, 2000}}, 48, {.window = 128}, 0, true},
      {4, 2, 80, 16, {{40, 300}, {1, 700}, {2, 2046}}, 0, {.window = 500}, 2.0f, true},
      {4, 2, 16, 32, {{20, 1300}, {1, 2500}}, 0, {.window = 1100}},
      {4, 2, 32, 32, {{33, 95}, {1, 200}}, 0, {.window = 4096}, 0, true},
      // Chunks shorter than a block, of whole segments, and of no such size.
      {4, 2, 16, 32, {{70, 0}, {1, 127}, {1, 128}, {3, 1022}}, 0, {.chunk = 32}},
      {8, 2, 32, 64, {{9, 1020}, {1, 2047}, {1, 2048}}, 0, {.chunk = 1024}},
      {2, 1, 32, 128, {{150, 1000}, {1, 2300}}, 0, {.chunk = 700}, 0, true},
  };
}

// Pages in random order, with random numbers in every token slot, and the queries of all rows.
template <class T>
struct AttentionBatch {
  KvLayer kv;
  Buffer pages;
  std::vector<std::vector<PageId>> page_lists;
  std::vector<AttentionSequence> sequences;
  std::vector<T> q;
  int num_rows = 0, num_heads = 0;
  float scale = 1;
  VisibleKeys visible;
  float soft_cap = 0;
  std::vector<float> sinks;

  int64_t q_cols() const { return num_heads * round_up(kv.shape.key_dim, kBlockK); }
  int64_t out_cols() const { return int64_t{num_heads} * kv.shape.value_dim; }
  MatrixView q_view() { return MatrixView::of(View<T>(q.data(), num_rows, q_cols())); }
  // Writes random numbers as one token's key and value, where the layout puts them.
  void write_token(PageId page, int offset, int head, std::mt19937& random) {
    const KvShape& shape = kv.shape;
    for (int d = 0; d < shape.key_dim; ++d)
      write_number(page, head, shape.key_offset(offset, d), random);
    for (int d = 0; d < shape.value_dim; ++d)
      write_number(page, head, shape.key_elements() + shape.value_offset(offset, d), random);
    if (shape.dtype != DType::int8) return;
    std::uniform_real_distribution<float> step(0.01f, 0.03f);
    for (int i : {0, shape.page_tokens}) kv.scales(page, head)[i + offset] = step(random);
  }
  // Return a number of a key or value as attention reads it.
  float key(PageId page, int offset, int head, int d) const {
    return number(page, head, kv.shape.key_offset(offset, d), offset);
  }
  float value(PageId page, int offset, int head, int d) const {
    const KvShape& shape = kv.shape;
    return number(page, head, shape.key_elements() + shape.value_offset(offset, d),
                  shape.page_tokens + offset);
  }

 private:
  void write_number(PageId page, int head, int64_t at, std::mt19937& random) {
    if (kv.shape.dtype == DType::int8) {
      kv.keys<int8_t>(page, head)[at] = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
    } else {
      kv.keys<T>(page, head)[at] = from_float<T>(std::normal_distribution<float>()(random));
    }
  }
  float number(PageId page, int head, int64_t at, int its_scale) const {
    if (kv.shape.dtype != DType::int8) return to_float(kv.keys<T>(page, head)[at]);
    return to_float(
        from_float<T>(kv.keys<int8_t>(page, head)[at] * kv.scales(page, head)[its_scale]));
  }
};

template <class T>
AttentionBatch<T> attention_batch(const AttentionCase& c, uint32_t seed,
                                  DType stored = dtype_of<T>) {
  std::mt19937 random(seed);
  AttentionBatch<T> b;
  b.num_heads = c.num_heads;
  b.scale = 1 / std::sqrt(static_cast<float>(c.dim));
  b.visible = c.visible;
  b.soft_cap = c.soft_cap;
  if (c.sinks)
    for (int head = 0; head < c.num_heads; ++head)
      b.sinks.push_back(std::normal_distribution<float>(0, 3)(random));
  b.kv.shape = {.dtype = stored,
                .num_heads = c.kv_heads,
                .key_dim = c.dim,
                .value_dim = c.value_dim > 0 ? c.value_dim : c.dim,
                .page_tokens = c.page_tokens};
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
    b.sequences.push_back({.row_begin = b.num_rows,
                           .num_rows = s.num_rows,
                           .first_position = s.first_position,
                           .pages = {}});
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

// Cuts every sequence into pieces of at most `rows`.
inline std::vector<AttentionSequence> cut_sequences(std::span<const AttentionSequence> sequences,
                                                    int rows) {
  std::vector<AttentionSequence> pieces;
  for (const AttentionSequence& s : sequences)
    for (int r = 0; r < s.num_rows; r += rows)
      pieces.push_back({.row_begin = s.row_begin + r,
                        .num_rows = std::min(rows, s.num_rows - r),
                        .first_position = s.first_position + r,
                        .form = s.form,
                        .pages = s.pages});
  return pieces;
}

}  // namespace hocket::cases
