// Batches for latent attention: shapes, sequences and numbers, one list for tests, fuzzing and
// benches.
#pragma once

#include <algorithm>
#include <numeric>

#include "compute/kernels/cases/linear_cases.h"
#include "compute/kernels/latent_attention.h"

namespace hocket::cases {

struct LatentAttentionCase {
  int num_heads, nope_dim, rope_dim, value_dim, rank, page_tokens;
  struct Sequence {
    int num_rows, first_position;
    MlaForm form;
  };
  std::vector<Sequence> sequences;
};

// Small heads (padding everywhere), and those of real models; context lengths around the borders of
// tiles, blocks and segments.
inline std::vector<LatentAttentionCase> latent_attention_cases() {
  using enum MlaForm;
  return {
      {4, 16, 16, 12, 32, 32, {{5, 0, expanded}, {1, 0, absorbed}, {1, 30, absorbed}}},
      {3, 16, 16, 12, 40, 64, {{1, 129, absorbed}, {70, 61, expanded}, {3, 254, absorbed}}},
      {20, 16, 64, 16, 32, 32, {{2, 98, absorbed}, {7, 33, absorbed}, {4, 0, expanded}}},
      {80, 16, 16, 16, 32, 128, {{1, 300, absorbed}, {2, 40, absorbed}}},
      {2, 16, 16, 12, 32, 64, {{2, 1022, absorbed}, {3, 1023, expanded}, {1, 2099, absorbed}}},
      {1, 128, 64, 128, 512, 32, {{2, 130, expanded}, {1, 131, absorbed}}},
      {1, 48, 16, 128, 96, 96, {{1100, 0, expanded}}},
      {3, 16, 16, 12, 40, 1, {{1, 129, absorbed}, {9, 61, expanded}}},
      {4, 16, 16, 12, 32, 16, {{5, 0, expanded}, {1, 1030, absorbed}, {2, 30, absorbed}}},
  };
}

// Matrices of one head, as plain rows and packed.
template <class T>
struct LatentHead {
  PackedMatrix<T> key_up, value_up, key_absorb;
};

// Pages in random order, with random numbers in every token slot, and the queries of all rows.
template <class T>
struct LatentAttentionBatch {
  LatentAttentionCase shape;
  KvLayer kv;
  Buffer pages;
  std::vector<LatentHead<T>> heads;
  std::vector<PackedWeight> key_up, value_up, key_absorb;
  std::vector<std::vector<PageId>> page_lists;
  std::vector<AttentionSequence> sequences;
  std::vector<T> q;
  int num_rows = 0;
  float scale = 1;

  int64_t q_dim() const { return round_up(shape.nope_dim + shape.rope_dim, kBlockK); }
  int64_t q_cols() const { return shape.num_heads * q_dim(); }
  int64_t out_cols() const { return int64_t{shape.num_heads} * shape.value_dim; }
  LatentShape latent_shape() const {
    return {.num_heads = shape.num_heads,
            .nope_dim = shape.nope_dim,
            .rope_dim = shape.rope_dim,
            .value_dim = shape.value_dim,
            .kv = kv.shape,
            .dtype = dtype_of<T>};
  }

  // Returns number `dim` of a token's row as attention reads it.
  float number(PageId page, int offset, int64_t dim) const {
    if (kv.shape.dtype != DType::int8) return to_float(kv.latent<T>(page, offset)[dim]);
    const int part = dim < kv.shape.rope_offset() ? 0 : 1;
    return to_float(from_float<T>(kv.latent<int8_t>(page, offset)[dim] *
                                  kv.scales(page, 0)[2 * offset + part]));
  }
  void write_token(PageId page, int offset, std::mt19937& random) {
    const auto rank = kv.shape.value_dim;
    for (int i = 0; i < rank; ++i) write_number(page, offset, i, random);
    for (int i = 0; i < shape.rope_dim; ++i)
      write_number(page, offset, kv.shape.rope_offset() + i, random);
    if (kv.shape.dtype != DType::int8) return;
    std::uniform_real_distribution<float> step(0.005f, 0.02f);
    for (int part : {0, 1}) kv.scales(page, 0)[2 * offset + part] = step(random);
  }

 private:
  void write_number(PageId page, int offset, int64_t dim, std::mt19937& random) {
    if (kv.shape.dtype == DType::int8) {
      const int number = static_cast<int>(random() % 255) - 127;
      kv.latent<int8_t>(page, offset)[dim] = static_cast<int8_t>(number);
    } else {
      kv.latent<T>(page, offset)[dim] = from_float<T>(std::normal_distribution<float>()(random));
    }
  }
};

// Packs rows of a matrix; the rows have about unit size, as in a model.
template <class T>
PackedMatrix<T> latent_matrix(std::vector<T> rows, int n, int k) {
  PackedMatrix<T> m;
  m.rows = std::move(rows);
  m.weight.format = format_of<T>;
  m.weight.n = n;
  m.weight.k = k;
  m.memory = *Buffer::allocate(m.weight.bytes());
  m.weight.data = m.memory.data();
  pack_rows<T>(View<const T>(m.rows.data(), n, k), 0, reinterpret_cast<T*>(m.memory.data()));
  return m;
}

template <class T>
LatentHead<T> latent_head(const LatentAttentionCase& c, std::mt19937& random) {
  std::normal_distribution<float> normal(0, 1 / std::sqrt(static_cast<float>(c.rank)));
  std::vector<T> key(c.nope_dim * c.rank), value(c.value_dim * c.rank), absorb(key.size());
  for (T& x : key) x = from_float<T>(normal(random));
  for (T& x : value) x = from_float<T>(normal(random));
  for (int n = 0; n < c.nope_dim; ++n)
    for (int k = 0; k < c.rank; ++k) absorb[k * c.nope_dim + n] = key[n * c.rank + k];
  return {latent_matrix(std::move(key), c.nope_dim, c.rank),
          latent_matrix(std::move(value), c.value_dim, c.rank),
          latent_matrix(std::move(absorb), c.rank, c.nope_dim)};
}

// Lays the sequences of `b` over `num_pages` shuffled pages.
template <class T>
void place_sequences(LatentAttentionBatch<T>& b, int num_pages, std::mt19937& random) {
  std::vector<int> order(num_pages);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  auto next = order.begin();
  for (const auto& s : b.shape.sequences) {
    const int tokens = s.first_position + s.num_rows, page_tokens = b.shape.page_tokens;
    auto& list = b.page_lists.emplace_back();
    for (int token = 0; token < tokens; token += page_tokens) list.push_back(PageId{*next++});
    b.sequences.push_back({.row_begin = b.num_rows,
                           .num_rows = s.num_rows,
                           .first_position = s.first_position,
                           .form = s.form,
                           .pages = {}});
    b.num_rows += s.num_rows;
  }
  for (size_t s = 0; s < b.sequences.size(); ++s) b.sequences[s].pages = b.page_lists[s];
}

template <class T>
LatentAttentionBatch<T> latent_attention_batch(const LatentAttentionCase& c, uint32_t seed,
                                               DType stored = dtype_of<T>) {
  std::mt19937 random(seed);
  LatentAttentionBatch<T> b;
  b.shape = c;
  b.scale = 1 / std::sqrt(static_cast<float>(c.nope_dim + c.rope_dim));
  b.kv.shape = {.kind = KvShape::Kind::latent,
                .dtype = stored,
                .num_heads = 1,
                .key_dim = c.rank + c.rope_dim,
                .value_dim = c.rank,
                .page_tokens = c.page_tokens};
  for (int h = 0; h < c.num_heads; ++h) {
    const LatentHead<T>& head = b.heads.emplace_back(latent_head<T>(c, random));
    b.key_up.push_back(head.key_up.weight);
    b.value_up.push_back(head.value_up.weight);
    b.key_absorb.push_back(head.key_absorb.weight);
  }
  int num_pages = 0;
  for (const auto& s : c.sequences)
    num_pages += (s.first_position + s.num_rows + c.page_tokens - 1) / c.page_tokens;
  b.pages = *Buffer::allocate(num_pages * b.kv.shape.page_bytes());
  b.kv.data = b.pages.data();
  for (int page = 0; page < num_pages; ++page)
    for (int token = 0; token < c.page_tokens; ++token) b.write_token(PageId{page}, token, random);
  place_sequences(b, num_pages, random);
  b.q.resize(b.num_rows * b.q_cols());
  std::normal_distribution<float> normal(0, 2);
  for (size_t i = 0; i < b.q.size(); ++i)
    b.q[i] = from_float<T>(
        static_cast<int64_t>(i) % b.q_dim() < c.nope_dim + c.rope_dim ? normal(random) : 0.0f);
  return b;
}

}  // namespace hocket::cases
