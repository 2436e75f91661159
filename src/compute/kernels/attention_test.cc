#include "compute/kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "compute/kernels/cases/attention_cases.h"
#include "compute/kernels/cases/row_cases.h"

namespace hocket {
namespace {

using cases::AttentionBatch;
using cases::AttentionCase;
using cases::cut_sequences;
using cases::same_bits;

// Runs a batch with its sequences cut as given; returns the rows of the output.
template <class T>
std::vector<T> run(Isa isa, AttentionBatch<T>& b, std::span<const AttentionSequence> sequences,
                   int num_workers = 1) {
  WorkerPool workers({.num_workers = num_workers});
  Backend backend =
      *Backend::create(isa, workers, attention_scratch_bytes(b.num_heads, b.kv.shape));
  AttentionPlan plan;
  plan.reserve(static_cast<int>(sequences.size()), b.num_rows);
  plan.sequences.assign(sequences.begin(), sequences.end());
  plan.build(b.num_heads, b.kv.shape);
  std::vector<T> out(b.num_rows * b.out_cols());
  attention(backend, {.q = b.q_view(),
                      .kv = b.kv,
                      .plan = plan,
                      .scale = b.scale,
                      .visible = b.visible,
                      .soft_cap = b.soft_cap,
                      .sinks = b.sinks,
                      .out = MatrixView::of(View<T>(out.data(), b.num_rows, b.out_cols()))});
  return out;
}

// Returns softmax attention in double, for one row and head.
template <class T>
std::vector<double> plain_attention(AttentionBatch<T>& b, const AttentionSequence& s, int row,
                                    int head) {
  const KvShape& shape = b.kv.shape;
  const int kv_head = head / (b.num_heads / shape.num_heads);
  const T* q =
      b.q_view().template as<T>().row(s.row_begin + row) + head * round_up(shape.key_dim, kBlockK);
  const int num_keys = s.first_position + row + 1;
  std::vector<double> p(num_keys), out(shape.value_dim);
  double total = b.sinks.empty() ? 0 : std::exp(double{b.sinks[head]});
  for (int t = 0; t < num_keys; ++t) {
    const int position = num_keys - 1;
    if (b.visible.window > 0 && t <= position - b.visible.window) continue;
    if (b.visible.chunk > 0 && t / b.visible.chunk != position / b.visible.chunk) continue;
    const PageId page = s.pages[t / shape.page_tokens];
    double score = 0;
    for (int d = 0; d < shape.key_dim; ++d)
      score += double{to_float(q[d])} * b.key(page, t % shape.page_tokens, kv_head, d);
    score *= b.scale;
    if (b.soft_cap > 0) score = b.soft_cap * std::tanh(score / b.soft_cap);
    total += p[t] = std::exp(score);
  }
  for (int t = 0; t < num_keys; ++t) {
    const PageId page = s.pages[t / shape.page_tokens];
    for (int d = 0; d < shape.value_dim; ++d)
      out[d] += p[t] / total * b.value(page, t % shape.page_tokens, kv_head, d);
  }
  return out;
}

template <class T>
void expect_close_to_plain_attention(const AttentionCase& c, DType stored, double tolerance) {
  auto b = cases::attention_batch<T>(c, 3, stored);
  const std::vector<T> got = run(Isa::ref, b, b.sequences);
  for (const AttentionSequence& s : b.sequences) {
    for (int row : {0, s.num_rows / 2, s.num_rows - 1}) {
      for (int head = 0; head < b.num_heads; ++head) {
        const auto want = plain_attention(b, s, row, head);
        for (int d = 0; d < b.kv.shape.value_dim; ++d) {
          const int64_t at = (s.row_begin + row) * b.out_cols() + head * b.kv.shape.value_dim + d;
          ASSERT_NEAR(to_float(got[at]), want[d], tolerance * (1 + std::abs(want[d])))
              << "position " << s.first_position + row << " head " << head << " dim " << d;
        }
      }
    }
  }
}

TEST(AttentionTest, RefIsSoftmaxAttention) {
  for (const AttentionCase& c : cases::attention_cases()) {
    const bool int8 = c.page_tokens == 32;
    expect_close_to_plain_attention<float>(c, int8 ? DType::int8 : DType::f32, 2e-6);
    expect_close_to_plain_attention<Bf16>(c, int8 ? DType::bf16 : DType::int8, 1e-2);
  }
}

template <class T>
void expect_same_everywhere(const AttentionCase& c, uint32_t seed, DType stored = dtype_of<T>) {
  auto b = cases::attention_batch<T>(c, seed, stored);
  const std::vector<T> expected = run(Isa::ref, b, b.sequences);
  for (Isa isa : cases::vector_isas()) {
    if (std::is_same_v<T, float> && isa > Isa::avx512) continue;  // same bodies as avx512
    const std::vector<T> got = run(isa, b, b.sequences);
    ASSERT_TRUE(same_bits(got, expected))
        << isa_name(isa) << " heads " << c.num_heads << " dim " << c.dim << " seed " << seed;
  }
}

TEST(AttentionTest, EveryBodyGivesTheBitsOfRef) {
  uint32_t seed = 0;
  for (const AttentionCase& c : cases::attention_cases()) {
    expect_same_everywhere<Bf16>(c, ++seed);
    expect_same_everywhere<float>(c, ++seed);
    expect_same_everywhere<Bf16>(c, ++seed, DType::int8);
    if (c.page_tokens != 32) expect_same_everywhere<float>(c, ++seed, DType::int8);
  }
}

TEST(AttentionTest, RandomMixesGiveTheSameBits) {
  std::mt19937 random(11);
  const auto pick = [&](std::initializer_list<int> list) {
    return list.begin()[random() % list.size()];
  };
  for (uint32_t seed = 0; seed < 24; ++seed) {
    const int kv_heads = pick({1, 2});
    AttentionCase c = {
        kv_heads * pick({1, 2, 3, 8}), kv_heads, pick({16, 32, 48, 64}), pick({32, 64, 128}), {}};
    c.visible = {.window = pick({0, 0, 1, 31, 100}), .chunk = pick({0, 0, 64, 100})};
    c.sinks = pick({0, 1}) == 1;
    for (int s = pick({1, 2, 5}); s > 0; --s)
      c.sequences.push_back({pick({1, 1, 2, 7, 33}), static_cast<int>(random() % 260)});
    expect_same_everywhere<Bf16>(c, seed, seed % 3 == 0 ? DType::int8 : DType::bf16);
  }
}

// Copies the keys and values of `from` into pages of another size.
template <class T>
AttentionBatch<T> in_pages_of(int page_tokens, AttentionCase c, const AttentionBatch<T>& from) {
  c.page_tokens = page_tokens;
  auto to = cases::attention_batch<T>(c, 1, from.kv.shape.dtype);
  to.q = from.q;
  const auto size = static_cast<size_t>(size_of(from.kv.shape.dtype));
  for (size_t s = 0; s < from.sequences.size(); ++s) {
    for (int t = 0; t < from.sequences[s].first_position + from.sequences[s].num_rows; ++t) {
      for (int head = 0; head < c.kv_heads; ++head) {
        struct Token {
          const KvShape& shape;
          std::byte* head;
          float* scales;
          int offset;
        };
        const auto token_of = [&](const AttentionBatch<T>& b) {
          const int tokens = b.kv.shape.page_tokens;
          const PageId page = b.page_lists[s][t / tokens];
          return Token{b.kv.shape, b.kv.head(page, head), b.kv.scales(page, head), t % tokens};
        };
        const Token a = token_of(from), b = token_of(to);
        const auto copy = [&](int64_t at, int64_t to_at) {
          std::memcpy(b.head + to_at * size, a.head + at * size, size);
        };
        for (int d = 0; d < c.dim; ++d) {
          copy(a.shape.key_offset(a.offset, d), b.shape.key_offset(b.offset, d));
          copy(a.shape.key_elements() + a.shape.value_offset(a.offset, d),
               b.shape.key_elements() + b.shape.value_offset(b.offset, d));
        }
        if (a.shape.dtype != DType::int8) continue;
        b.scales[b.offset] = a.scales[a.offset];
        b.scales[page_tokens + b.offset] = a.scales[a.shape.page_tokens + a.offset];
      }
    }
  }
  return to;
}

template <class T>
void expect_same_in_pages_of_every_size(const AttentionCase& c, DType stored) {
  auto b = cases::attention_batch<T>(c, 9, stored);
  const std::vector<T> expected = run(cases::vector_isas().back(), b, b.sequences);
  for (const int page_tokens : {1, 2, 4, 8, 16, 32, 64, 128}) {
    auto other = in_pages_of(page_tokens, c, b);
    for (Isa isa : cases::vector_isas())
      ASSERT_TRUE(same_bits(run(isa, other, other.sequences, 2), expected))
          << isa_name(isa) << " dim " << c.dim << " page " << page_tokens << " stored "
          << dtype_name(stored);
  }
}

TEST(AttentionTest, PageSizesChangeNoBit) {
  const AttentionCase all[] = {{4, 2, 16, 32, {{5, 0}, {1, 31}, {1, 128}, {3, 300}}},
                               {8, 2, 80, 64, {{40, 100}, {1, 1}, {3, 1022}}},
                               {4, 2, 32, 32, {{40, 100}, {3, 1100}}, 0, {.window = 70}}};
  for (const AttentionCase& c : all) {
    expect_same_in_pages_of_every_size<Bf16>(c, DType::bf16);
    expect_same_in_pages_of_every_size<Bf16>(c, DType::int8);
    expect_same_in_pages_of_every_size<float>(c, DType::f32);
  }
}

TEST(AttentionTest, CutsChangeNoBit) {
  for (const AttentionCase& c : cases::attention_cases()) {
    auto b = cases::attention_batch<Bf16>(c, 5, c.page_tokens == 64 ? DType::int8 : DType::bf16);
    for (Isa isa : cases::vector_isas()) {
      const std::vector<Bf16> whole = run(isa, b, b.sequences);
      for (int rows : {1, 17, 64})
        ASSERT_TRUE(same_bits(run(isa, b, cut_sequences(b.sequences, rows)), whole))
            << isa_name(isa) << " dim " << c.dim << " pieces of " << rows;
    }
  }
}

TEST(AttentionTest, WorkersChangeNoBit) {
  for (const AttentionCase& c : cases::attention_cases()) {
    auto b = cases::attention_batch<Bf16>(c, 6, c.page_tokens == 64 ? DType::int8 : DType::bf16);
    for (Isa isa : cases::vector_isas()) {
      const std::vector<Bf16> alone = run(isa, b, b.sequences);
      for (int workers : {2, 5}) ASSERT_TRUE(same_bits(run(isa, b, b.sequences, workers), alone));
    }
  }
}

// The test writes other random numbers after the last token of every sequence.
TEST(AttentionTest, WhatStandsBehindTheLastTokenDoesNotMatter) {
  std::mt19937 random(1);
  for (const AttentionCase& c : cases::attention_cases()) {
    auto b = cases::attention_batch<Bf16>(c, 7, c.page_tokens == 64 ? DType::int8 : DType::bf16);
    for (Isa isa : cases::vector_isas()) {
      const std::vector<Bf16> before = run(isa, b, b.sequences);
      for (const AttentionSequence& s : b.sequences) {
        const int tokens = s.first_position + s.num_rows;
        for (int t = tokens; t % c.page_tokens != 0; ++t)
          for (int head = 0; head < c.kv_heads; ++head)
            b.write_token(s.pages[t / c.page_tokens], t % c.page_tokens, head, random);
      }
      ASSERT_TRUE(same_bits(run(isa, b, b.sequences), before)) << isa_name(isa);
    }
  }
}

// The test writes other random numbers over the keys that no row of the sequence sees.
TEST(AttentionTest, KeysOutOfReachDoNotMatter) {
  std::mt19937 random(2);
  int written = 0;
  for (const AttentionCase& c : cases::attention_cases()) {
    auto b = cases::attention_batch<Bf16>(c, 12, c.page_tokens == 64 ? DType::int8 : DType::bf16);
    for (Isa isa : kAllIsas) {
      if (!runs_here(isa)) continue;
      const std::vector<Bf16> before = run(isa, b, b.sequences);
      for (const AttentionSequence& s : b.sequences)
        for (int t = 0; t < b.visible.first_key(s.first_position); ++t, ++written)
          for (int head = 0; head < c.kv_heads; ++head)
            b.write_token(s.pages[t / c.page_tokens], t % c.page_tokens, head, random);
      ASSERT_TRUE(same_bits(run(isa, b, b.sequences), before)) << isa_name(isa);
    }
  }
  EXPECT_GT(written, 10'000);
}

// Keys in whole units of 32 that no row sees are not read, whatever they hold.
TEST(AttentionTest, KeysFarOutOfReachAreNotRead) {
  AttentionCase c = {8, 2, 32, 32, {{1, 700}, {40, 1100}}};
  c.visible.window = 64;
  for (Isa isa : kAllIsas) {
    if (!runs_here(isa)) continue;
    auto b = cases::attention_batch<Bf16>(c, 13);
    const std::vector<Bf16> before = run(isa, b, b.sequences);
    for (const AttentionSequence& s : b.sequences)
      for (int t = 0; t < b.visible.first_key(s.first_position) / 32 * 32; ++t)
        for (int head = 0; head < c.kv_heads; ++head) {
          const PageId page = s.pages[t / 32];
          b.kv.keys<Bf16>(page, head)[b.kv.shape.key_offset(t % 32, 0)] = {0x7fc0};
          b.kv.values<Bf16>(page, head)[b.kv.shape.value_offset(t % 32, 0)] = {0x7fc0};
        }
    ASSERT_TRUE(same_bits(run(isa, b, b.sequences), before)) << isa_name(isa);
  }
}

TEST(KeyReachTest, TheFirstKeyIsThatOfWindowAndChunk) {
  EXPECT_EQ(VisibleKeys{}.first_key(5000), 0);
  EXPECT_FALSE(VisibleKeys{}.bounded());
  const VisibleKeys window = {.window = 4};
  EXPECT_TRUE(window.bounded());
  EXPECT_EQ(window.first_key(0), 0);
  EXPECT_EQ(window.first_key(3), 0);
  EXPECT_EQ(window.first_key(4), 1);
  const VisibleKeys chunk = {.chunk = 4};
  EXPECT_EQ(chunk.first_key(3), 0);
  EXPECT_EQ(chunk.first_key(4), 4);
  EXPECT_EQ(chunk.first_key(7), 4);
  EXPECT_EQ((VisibleKeys{.window = 2, .chunk = 4}).first_key(4), 4);
  EXPECT_EQ((VisibleKeys{.window = 2, .chunk = 4}).first_key(7), 6);
}

TEST(AttentionTest, NotANumberStaysInItsSequence) {
  const AttentionCase c = {4, 2, 32, 32, {{3, 40}, {5, 20}, {1, 70}}};
  for (Isa isa : kAllIsas) {
    if (!runs_here(isa)) continue;
    auto b = cases::attention_batch<Bf16>(c, 8);
    const std::vector<Bf16> before = run(isa, b, b.sequences);
    const AttentionSequence& poisoned = b.sequences[1];
    b.kv.keys<Bf16>(poisoned.pages[0], 0)[b.kv.shape.key_offset(3, 0)] = {0x7fc0};
    b.kv.values<Bf16>(poisoned.pages[0], 1)[b.kv.shape.value_offset(4, 0)] = {0x7fc0};
    const std::vector<Bf16> after = run(isa, b, b.sequences);
    for (int row = 0; row < b.num_rows; ++row) {
      const bool own = row >= poisoned.row_begin && row < poisoned.row_begin + poisoned.num_rows;
      const auto begin = row * b.out_cols();
      const bool same = std::memcmp(&before[begin], &after[begin], b.out_cols() * 2) == 0;
      EXPECT_EQ(same, !own) << isa_name(isa) << " row " << row;
    }
  }
}

// Sequences of a few rows. A sequence with a prefix starts with the first pages of its origin.
struct SharedCase {
  AttentionCase all;
  struct Prefix {
    int sequence, origin, tokens;
  };
  std::vector<Prefix> prefixes;
};

std::vector<SharedCase> shared_cases() {
  SharedCase two = {{16, 4, 64, 32, {{1, 700}, {1, 650}, {2, 700}, {1, 90}}},
                    {{1, 0, 640}, {2, 0, 640}, {3, 0, 64}}};
  // A tree: eight sequences share 256 tokens, three of them 1,152; a ninth continues as a prompt.
  SharedCase tree = {{4, 2, 16, 64, {}}, {}};
  for (int i = 0; i < 8; ++i) {
    tree.all.sequences.push_back({1 + i % 2, 1200 + 13 * i});
    if (i > 0) tree.prefixes.push_back({i, 0, i < 3 ? 1152 : 256});
  }
  tree.all.sequences.push_back({40, 1152});
  tree.prefixes.push_back({8, 0, 1152});
  // More rows than fit one task; each query head has its own keys.
  SharedCase many = {{2, 2, 80, 32, {}}, {}};
  for (int i = 0; i < 70; ++i) {
    many.all.sequences.push_back({1, 140 + i % 5});
    if (i > 0) many.prefixes.push_back({i, 0, 128});
  }
  SharedCase rows = {{8, 2, 80, 16, {{1, 200}, {3, 190}, {1, 260}}}, {{1, 0, 128}, {2, 0, 192}}};
  SharedCase window = tree;
  window.all.visible.window = 300;
  window.all.sinks = true;
  return {two, tree, many, rows, window};
}

template <class T>
AttentionBatch<T> shared_batch(const SharedCase& c, uint32_t seed, DType stored) {
  auto b = cases::attention_batch<T>(c.all, seed, stored);
  for (const auto& [to, from, tokens] : c.prefixes)
    std::copy_n(b.page_lists[from].begin(), tokens / c.all.page_tokens, b.page_lists[to].begin());
  return b;
}

template <class T>
void expect_same_as_alone(const SharedCase& c, DType stored) {
  auto b = shared_batch<T>(c, 4, stored);
  std::vector<T> alone(b.num_rows * b.out_cols());
  for (const AttentionSequence& s : b.sequences) {
    const std::vector<T> one = run(Isa::ref, b, std::span(&s, 1));
    const int64_t begin = s.row_begin * b.out_cols(), count = s.num_rows * b.out_cols();
    std::copy_n(one.begin() + begin, count, alone.begin() + begin);
  }
  ASSERT_TRUE(same_bits(run(Isa::ref, b, b.sequences), alone));
  for (Isa isa : cases::vector_isas())
    for (int workers : {1, 2, 5})
      ASSERT_TRUE(same_bits(run(isa, b, b.sequences, workers), alone))
          << isa_name(isa) << " dim " << c.all.dim << " workers " << workers << " stored "
          << dtype_name(stored);
}

TEST(AttentionTest, SharedPrefixesChangeNoBit) {
  for (const SharedCase& c : shared_cases()) {
    expect_same_as_alone<Bf16>(c, DType::bf16);
    expect_same_as_alone<Bf16>(c, DType::int8);
    expect_same_as_alone<float>(c, DType::f32);
  }
}

void expect_each_row_once(const AttentionPlan& plan, int num_rows) {
  std::vector<int> covered(num_rows);
  for (const AttentionPlan::Task& task : plan.tasks) {
    for (int m = 0; m < task.num_members; ++m) {
      const AttentionPlan::Task rows = plan.member(task, m);
      for (int r = 0; r < rows.num_rows; ++r)
        ++covered[plan.sequences[rows.sequence].row_begin + rows.row_begin + r];
    }
  }
  EXPECT_EQ(covered, std::vector<int>(num_rows, 1));
}

TEST(AttentionPlanTest, CoversEveryRowOnceLongestFirst) {
  AttentionPlan plan;
  plan.sequences = {{.row_begin = 0, .num_rows = 100, .first_position = 0, .pages = {}},
                    {.row_begin = 100, .num_rows = 1, .first_position = 5000, .pages = {}},
                    {.row_begin = 101, .num_rows = 1, .first_position = 7, .pages = {}}};
  // Many workers get more tasks, which are smaller.
  for (const auto& [num_workers, max_rows] : {std::pair(1, 64), std::pair(8, 16)}) {
    plan.num_workers = num_workers;
    plan.build(16, {.num_heads = 4, .key_dim = 32, .value_dim = 32});
    expect_each_row_once(plan, 102);
    for (const AttentionPlan::Task& task : plan.tasks) EXPECT_LE(task.num_rows, max_rows);
    EXPECT_EQ(plan.tasks.front().sequence, 1);
    EXPECT_EQ(plan.tasks.back().sequence, 2);
  }
}

AttentionPlan plan_of(const SharedCase& c, int num_workers) {
  static AttentionBatch<Bf16> b;  // holds the pages that the plan points to
  b = shared_batch<Bf16>(c, 1, DType::bf16);
  AttentionPlan plan;
  plan.num_workers = num_workers;
  plan.sequences = b.sequences;
  plan.build(b.num_heads, b.kv.shape);
  expect_each_row_once(plan, b.num_rows);
  return plan;
}

TEST(AttentionPlanTest, SequencesThatShareAPrefixAreOneTask) {
  const std::vector<SharedCase> all = shared_cases();
  const AttentionPlan two = plan_of(all[0], 1);
  ASSERT_EQ(two.tasks.size(), 2);  // the last sequence shares too little
  EXPECT_EQ(two.tasks[0].num_members, 3);
  EXPECT_EQ(two.tasks[0].num_rows, 4);
  EXPECT_EQ(two.tasks[0].shared_keys, 640);
  EXPECT_EQ(two.num_keys(two.tasks[0]), 702);

  // Three sequences of the tree share more than all eight do together; the prompt has enough rows
  // for tasks of its own.
  int deepest = 0;
  for (const AttentionPlan::Task& task : plan_of(all[1], 1).tasks) {
    if (task.num_members == 1) continue;
    EXPECT_EQ(task.shared_keys, task.num_members == 3 ? 1152 : 256);
    deepest = std::max(deepest, task.shared_keys);
  }
  EXPECT_EQ(deepest, 1152);

  std::vector<int> rows;
  for (const AttentionPlan::Task& task : plan_of(all[2], 1).tasks) rows.push_back(task.num_rows);
  EXPECT_EQ(rows, (std::vector<int>{35, 35}));
}

TEST(AttentionPlanTest, SequencesOfWindowLayersShareNoTask) {
  AttentionBatch<Bf16> batch = shared_batch<Bf16>(shared_cases()[0], 1, DType::bf16);
  AttentionPlan plan;
  plan.shares_keys = false;
  plan.sequences = batch.sequences;
  plan.build(batch.num_heads, batch.kv.shape);
  expect_each_row_once(plan, batch.num_rows);
  for (const AttentionPlan::Task& task : plan.tasks) EXPECT_EQ(task.num_members, 1);
}

TEST(AttentionPlanTest, SharingLeavesNoWorkerIdle) {
  const SharedCase many = shared_cases()[2];  // 70 rows, two KV heads
  for (const int workers : {1, 8, 64}) {
    const auto tasks = static_cast<int>(plan_of(many, workers).tasks.size());
    EXPECT_GE(2 * tasks, std::min(140, 2 * workers));
  }
}

TEST(AttentionPlanTest, OfLatentsPromptsComeFirstInLargeTasks) {
  AttentionPlan plan;
  using enum MlaForm;
  plan.sequences = {
      {.row_begin = 0, .num_rows = 9, .first_position = 90, .form = absorbed, .pages = {}},
      {.row_begin = 9, .num_rows = 1500, .first_position = 0, .form = expanded, .pages = {}},
      {.row_begin = 1509, .num_rows = 1, .first_position = 7, .form = absorbed, .pages = {}}};
  plan.build(16, {.kind = KvShape::Kind::latent, .num_heads = 1, .key_dim = 96, .value_dim = 64});
  expect_each_row_once(plan, 1510);
  std::vector<int> rows;
  for (const AttentionPlan::Task& task : plan.tasks) rows.push_back(task.num_rows);
  EXPECT_EQ(rows, (std::vector<int>{1024, 476, 4, 4, 1, 1}));
}

}  // namespace
}  // namespace hocket
