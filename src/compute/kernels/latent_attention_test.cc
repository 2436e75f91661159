#include "compute/kernels/latent_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "compute/kernels/cases/attention_cases.h"
#include "compute/kernels/cases/latent_attention_cases.h"
#include "compute/kernels/cases/row_cases.h"

namespace hocket {
namespace {

using cases::cut_sequences;
using cases::LatentAttentionBatch;
using cases::LatentAttentionCase;
using cases::same_bits;

// Runs a batch with exactly the required scratch and its sequences cut as given; returns the rows
// of the output.
template <class T>
std::vector<T> run(Isa isa, LatentAttentionBatch<T>& b,
                   std::span<const AttentionSequence> sequences, int num_workers = 1) {
  WorkerPool workers({.num_workers = num_workers});
  Backend backend =
      *Backend::create(isa, workers, latent_attention_scratch_bytes(b.latent_shape()));
  AttentionPlan plan;
  plan.reserve(static_cast<int>(sequences.size()), b.num_rows);
  plan.sequences.assign(sequences.begin(), sequences.end());
  plan.build(b.shape.num_heads, b.kv.shape);
  const int64_t rows = b.num_rows, heads = b.shape.num_heads;
  const int64_t key = heads * b.kv.shape.row_elements(), value = heads * b.kv.shape.rope_offset();
  const T noise = from_float<T>(std::nanf(""));
  std::vector<T> q_absorbed(rows * key, noise), y_absorbed(rows * value, noise);
  std::vector<T> out(rows * b.out_cols(), noise);
  latent_attention(backend, {.q = MatrixView::of(View<T>(b.q.data(), rows, b.q_cols())),
                             .kv = b.kv,
                             .plan = plan,
                             .scale = b.scale,
                             .heads = {b.key_up, b.value_up, b.key_absorb},
                             .nope_dim = b.shape.nope_dim,
                             .rope_dim = b.shape.rope_dim,
                             .value_dim = b.shape.value_dim,
                             .q_absorbed = MatrixView::of(View<T>(q_absorbed.data(), rows, key)),
                             .y_absorbed = MatrixView::of(View<T>(y_absorbed.data(), rows, value)),
                             .out = MatrixView::of(View<T>(out.data(), rows, b.out_cols()))});
  return out;
}

DType stored_as(const LatentAttentionCase& c) {
  return c.page_tokens == 64 ? DType::int8 : DType::bf16;
}

// Returns softmax attention in double over the head's own keys and values, which both forms must
// equal.
template <class T>
std::vector<double> plain_attention(LatentAttentionBatch<T>& b, const AttentionSequence& s, int row,
                                    int head) {
  const auto& [num_heads, nope, rope, value_dim, rank, page_tokens, unused] = b.shape;
  const T* q = &b.q[(s.row_begin + row) * b.q_cols() + head * b.q_dim()];
  const int num_keys = s.first_position + row + 1;
  std::vector<double> p(num_keys), sum(rank), absorbed(rank), out(value_dim);
  for (int i = 0; i < rank; ++i)
    for (int n = 0; n < nope; ++n)
      absorbed[i] += double{to_float(q[n])} * to_float(b.heads[head].key_up.rows[n * rank + i]);
  double total = 0;
  for (int t = 0; t < num_keys; ++t) {
    const PageId page = s.pages[t / page_tokens];
    const int offset = t % page_tokens;
    double score = 0;
    for (int i = 0; i < rank; ++i) score += absorbed[i] * b.number(page, offset, i);
    for (int i = 0; i < rope; ++i)
      score += double{to_float(q[nope + i])} * b.number(page, offset, b.kv.shape.rope_offset() + i);
    total += p[t] = std::exp(score * b.scale);
  }
  for (int t = 0; t < num_keys; ++t)
    for (int i = 0; i < rank; ++i)
      sum[i] += p[t] / total * b.number(s.pages[t / page_tokens], t % page_tokens, i);
  for (int d = 0; d < value_dim; ++d)
    for (int i = 0; i < rank; ++i)
      out[d] += sum[i] * to_float(b.heads[head].value_up.rows[d * rank + i]);
  return out;
}

template <class T>
void expect_close_to_plain_attention(const LatentAttentionCase& c, DType stored, double tolerance) {
  auto b = cases::latent_attention_batch<T>(c, 3, stored);
  const std::vector<T> got = run(Isa::ref, b, b.sequences);
  for (const AttentionSequence& s : b.sequences) {
    for (int row : {0, s.num_rows - 1}) {
      for (int head : {0, c.num_heads - 1}) {
        const auto want = plain_attention(b, s, row, head);
        for (int d = 0; d < c.value_dim; ++d) {
          const int64_t at = (s.row_begin + row) * b.out_cols() + head * c.value_dim + d;
          ASSERT_NEAR(to_float(got[at]), want[d], tolerance)
              << "position " << s.first_position + row << " head " << head << " dim " << d;
        }
      }
    }
  }
}

// Copies the rows of `from` into pages of another size.
template <class T>
LatentAttentionBatch<T> in_pages_of(int page_tokens, LatentAttentionCase c,
                                    const LatentAttentionBatch<T>& from) {
  c.page_tokens = page_tokens;
  auto to = cases::latent_attention_batch<T>(c, 9, from.kv.shape.dtype);  // same heads
  to.q = from.q;
  const KvShape& shape = from.kv.shape;
  for (size_t s = 0; s < from.sequences.size(); ++s) {
    for (int t = 0; t < from.sequences[s].first_position + from.sequences[s].num_rows; ++t) {
      const PageId a = from.page_lists[s][t / shape.page_tokens];
      const PageId b = to.page_lists[s][t / page_tokens];
      const int at = t % shape.page_tokens, to_at = t % page_tokens;
      const int64_t bytes = shape.row_elements() * size_of(shape.dtype);
      std::memcpy(to.kv.head(b, 0) + to_at * bytes, from.kv.head(a, 0) + at * bytes, bytes);
      if (shape.dtype == DType::int8)
        std::copy_n(from.kv.scales(a, 0) + 2 * at, 2, to.kv.scales(b, 0) + 2 * to_at);
    }
  }
  return to;
}

TEST(LatentAttentionTest, PageSizesChangeNoBit) {
  using enum MlaForm;
  const LatentAttentionCase c = {
      4, 16, 16, 12, 40, 64, {{1, 129, absorbed}, {70, 61, expanded}, {2, 1022, absorbed}}};
  for (const DType stored : {DType::bf16, DType::int8}) {
    auto b = cases::latent_attention_batch<Bf16>(c, 9, stored);
    const std::vector<Bf16> expected = run(cases::vector_isas().back(), b, b.sequences);
    for (const int page_tokens : {1, 2, 4, 8, 16, 32, 64, 128}) {
      auto other = in_pages_of(page_tokens, c, b);
      for (Isa isa : cases::vector_isas())
        ASSERT_TRUE(same_bits(run(isa, other, other.sequences, 2), expected))
            << isa_name(isa) << " page " << page_tokens << " stored " << dtype_name(stored);
    }
  }
}

TEST(LatentAttentionTest, RefIsSoftmaxAttentionInBothForms) {
  for (LatentAttentionCase c : cases::latent_attention_cases()) {
    if (c.sequences[0].num_rows > 100) c.sequences[0].num_rows = 100;
    expect_close_to_plain_attention<float>(c, DType::f32, 1e-5);
    expect_close_to_plain_attention<Bf16>(c, stored_as(c), 4e-2);
  }
}

template <class T>
void expect_same_everywhere(const LatentAttentionCase& c, uint32_t seed, DType stored) {
  auto b = cases::latent_attention_batch<T>(c, seed, stored);
  const std::vector<T> expected = run(Isa::ref, b, b.sequences);
  for (Isa isa : cases::vector_isas()) {
    if (std::is_same_v<T, float> && isa > Isa::avx512) continue;  // same bodies as avx512
    for (int num_workers : {1, 2})
      ASSERT_TRUE(same_bits(run(isa, b, b.sequences, num_workers), expected))
          << isa_name(isa) << " heads " << c.num_heads << " rank " << c.rank << " pages "
          << c.page_tokens << " stored " << dtype_name(stored) << " workers " << num_workers;
  }
}

TEST(LatentAttentionTest, EveryBodyGivesTheBitsOfRef) {
  uint32_t seed = 0;
  for (const LatentAttentionCase& c : cases::latent_attention_cases()) {
    ++seed;
    expect_same_everywhere<Bf16>(c, seed, DType::bf16);
    if (c.rank > 90) continue;  // slow in ref
    expect_same_everywhere<Bf16>(c, seed, DType::int8);
    expect_same_everywhere<float>(c, seed, DType::f32);
    expect_same_everywhere<float>(c, seed, DType::int8);
  }
}

TEST(LatentAttentionTest, RandomMixesGiveTheSameBits) {
  std::mt19937 random(11);
  const auto pick = [&](std::initializer_list<int> list) {
    return list.begin()[random() % list.size()];
  };
  for (uint32_t seed = 0; seed < 16; ++seed) {
    LatentAttentionCase c = {pick({1, 2, 5, 33}),
                             pick({16, 24, 32}),
                             pick({16, 32}),
                             pick({12, 16, 40}),
                             pick({32, 48}),
                             pick({32, 64, 128}),
                             {}};
    for (int s = pick({1, 2, 4}); s > 0; --s)
      c.sequences.push_back({pick({1, 1, 2, 7, 33}), static_cast<int>(random() % 200),
                             random() % 2 == 0 ? MlaForm::expanded : MlaForm::absorbed});
    expect_same_everywhere<Bf16>(c, seed, seed % 3 == 0 ? DType::int8 : DType::bf16);
  }
}

TEST(LatentAttentionTest, CutsAndWorkersChangeNoBit) {
  for (const LatentAttentionCase& c : cases::latent_attention_cases()) {
    auto b = cases::latent_attention_batch<Bf16>(c, 5, stored_as(c));
    for (Isa isa : cases::vector_isas()) {
      const std::vector<Bf16> whole = run(isa, b, b.sequences);
      for (int rows : {1, 17, 64}) {
        if (b.num_rows / rows >= 100) continue;  // slow: each piece expands all keys
        ASSERT_TRUE(same_bits(run(isa, b, cut_sequences(b.sequences, rows)), whole))
            << isa_name(isa) << " rank " << c.rank << " pieces of " << rows;
      }
      ASSERT_TRUE(same_bits(run(isa, b, b.sequences, 5), whole)) << isa_name(isa);
    }
  }
}

// The form depends only on the row, so other rows of the batch change nothing.
TEST(LatentAttentionTest, CompanyChangesNoBit) {
  const LatentAttentionCase c = cases::latent_attention_cases()[1];
  auto b = cases::latent_attention_batch<Bf16>(c, 6);
  for (Isa isa : cases::vector_isas()) {
    const std::vector<Bf16> together = run(isa, b, b.sequences);
    for (const AttentionSequence& s : b.sequences) {
      const std::vector<Bf16> alone = run(isa, b, std::span(&s, 1));
      const int64_t begin = s.row_begin * b.out_cols(), count = s.num_rows * b.out_cols();
      EXPECT_EQ(std::memcmp(&alone[begin], &together[begin], count * sizeof(Bf16)), 0)
          << isa_name(isa);
    }
    auto other = b.sequences;
    for (AttentionSequence& s : other) s.form = MlaForm::absorbed;
    EXPECT_FALSE(same_bits(run(isa, b, other), together)) << isa_name(isa);
  }
}

// The test writes other random numbers after the last token of every sequence.
TEST(LatentAttentionTest, WhatStandsBehindTheLastTokenDoesNotMatter) {
  std::mt19937 random(1);
  for (const LatentAttentionCase& c : cases::latent_attention_cases()) {
    if (c.rank > 100) continue;
    auto b = cases::latent_attention_batch<Bf16>(c, 7, stored_as(c));
    for (Isa isa : cases::vector_isas()) {
      const std::vector<Bf16> before = run(isa, b, b.sequences);
      for (const AttentionSequence& s : b.sequences)
        for (int t = s.first_position + s.num_rows; t % c.page_tokens != 0; ++t)
          b.write_token(s.pages[t / c.page_tokens], t % c.page_tokens, random);
      ASSERT_TRUE(same_bits(run(isa, b, b.sequences), before)) << isa_name(isa);
    }
  }
}

TEST(LatentAttentionTest, NotANumberStaysInItsSequence) {
  LatentAttentionCase c = cases::latent_attention_cases()[0];
  c.sequences = {{3, 40, MlaForm::absorbed},
                 {5, 20, MlaForm::expanded},
                 {1, 20, MlaForm::absorbed},
                 {2, 9, MlaForm::expanded}};
  std::vector<Isa> isas = cases::vector_isas();
  isas.push_back(Isa::ref);
  for (Isa isa : isas) {
    for (size_t poisoned : {0u, 1u}) {
      auto b = cases::latent_attention_batch<Bf16>(c, 8);
      const std::vector<Bf16> before = run(isa, b, b.sequences);
      const AttentionSequence& s = b.sequences[poisoned];
      b.kv.latent<Bf16>(s.pages[0], 3)[1] = {0x7fc0};
      const std::vector<Bf16> after = run(isa, b, b.sequences);
      for (int row = 0; row < b.num_rows; ++row) {
        const bool own = row >= s.row_begin && row < s.row_begin + s.num_rows;
        const auto begin = row * b.out_cols();
        const bool same = std::memcmp(&before[begin], &after[begin], b.out_cols() * 2) == 0;
        EXPECT_EQ(same, !own) << isa_name(isa) << " row " << row;
      }
    }
  }
}

}  // namespace
}  // namespace hocket
