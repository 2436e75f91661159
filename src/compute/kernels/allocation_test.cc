// Operations allocate no memory, because all memory is planned at start.
#include <gtest/gtest.h>

#include "base/count_allocations_testing.h"
#include "compute/kernels/cases/attention_cases.h"
#include "compute/kernels/cases/experts_cases.h"
#include "compute/kernels/cases/latent_attention_cases.h"
#include "compute/kernels/cases/row_cases.h"
#include "compute/kernels/choose.h"
#include "compute/kernels/combine.h"
#include "compute/kernels/linear.h"
#include "compute/kernels/norm.h"
#include "compute/kernels/rope.h"
#include "compute/kernels/router.h"
#include "compute/kernels/row_stats.h"
#include "compute/kernels/store_kv.h"
#include "compute/kernels/store_latent_kv.h"

namespace hocket {
namespace {

TEST(AllocationTest, RowOperationsAllocateNothing) {
  constexpr int kRows = 9, kHeads = 4, kKvHeads = 2, kDim = 32,
                kQkv = (kHeads + 2 * kKvHeads) * kDim;
  auto b = cases::attention_batch<Bf16>({kHeads, kKvHeads, kDim, 32, {{1, 2100}, {8, 30}}}, 1);
  std::mt19937 random(1);
  WorkerPool workers({.num_workers = 2});
  Backend backend =
      *Backend::create(detect_isa(), workers, attention_scratch_bytes(kHeads, b.kv.shape) + 4096);
  const RopeFrequencies frequencies = rope_frequencies({.rotary_dim = kDim});
  std::vector<int32_t> positions(kRows, 40), ids(kRows * 2), rows(kRows);
  const std::vector<int32_t> positions_of_slots(kRows * 2);
  std::vector<float> angles(kRows * kDim), weights(kRows * 2), p(kQkv);
  std::vector<KvSlot> slots(kRows, KvSlot{b.page_lists[0][0], 0});
  std::vector<Bf16> y(kRows * kQkv);
  std::vector<RowStats> stats(kRows);
  auto x = cases::random_row(kRows * kQkv, 1, random);
  const View<float> rows_of_x(x.data(), kRows, kQkv);
  const View<float> cos(angles.data(), kRows, kDim / 2, kDim),
      sin(&angles[kDim / 2], kRows, kDim / 2, kDim);
  const MatrixView out = MatrixView::of(View<Bf16>(y.data(), kRows, kQkv));
  const View<int32_t> chosen(ids.data(), kRows, 2);
  const MoeConfig moe = {.num_experts = kQkv,
                         .top_k = 2,
                         .score = MoeConfig::Score::sigmoid,
                         .num_groups = 4,
                         .top_groups = 2,
                         .group_score = MoeConfig::GroupScore::two_best,
                         .norm_topk_prob = true};
  KvLayer latents = {.shape = {.kind = KvShape::Kind::latent,
                               .dtype = DType::int8,
                               .num_heads = 1,
                               .key_dim = 40,
                               .value_dim = 8}};
  std::vector<std::byte> latent_page(latents.shape.page_bytes());
  latents.data = latent_page.data();
  std::vector<KvSlot> latent_slots(kRows, KvSlot{PageId{0}, 0});
  for (int r = 0; r < kRows; ++r) latent_slots[r].offset = r;
  AttentionPlan plan;
  plan.reserve(2, kRows);
  const std::vector<int32_t> leaves = combine_leaves(kQkv, 2);
  const int64_t before = num_allocations;
  plan.sequences.assign(b.sequences.begin(), b.sequences.end());
  plan.build(kHeads, b.kv.shape);
  rms_norm(backend, rows_of_x, p, 1e-6f, out);
  rope_angles(backend, frequencies, positions, cos, sin);
  store_kv(backend, {.qkv = rows_of_x,
                     .num_heads = kHeads,
                     .q_norm = {},
                     .k_norm = {},
                     .norm_eps = 1e-6f,
                     .cos = cos,
                     .sin = sin,
                     .slots = slots,
                     .q = b.q_view(),
                     .kv = b.kv});
  attention(backend, {.q = b.q_view(),
                      .kv = b.kv,
                      .plan = plan,
                      .scale = b.scale,
                      .out = MatrixView::of(View<Bf16>(y.data(), kRows, b.out_cols()))});
  select_experts(backend, {.logits = rows_of_x,
                           .bias = p,
                           .moe = moe,
                           .ids = chosen,
                           .weights = View<float>(weights.data(), kRows, 2)});
  gather_rows(backend, out.slice_rows(0, 1), std::span(rows).first(1), out.slice_rows(1, 1));
  combine_rows(backend, {.y = out,
                         .ids = chosen,
                         .position = View<const int32_t>(positions_of_slots.data(), kRows, 2),
                         .weights = View<const float>(weights.data(), kRows, 2),
                         .leaves = leaves,
                         .shared = rows_of_x,
                         .residual = rows_of_x});
  store_latent_kv(backend, {.q = rows_of_x.slice_cols(0, kHeads * 40),
                            .latent = rows_of_x.slice_cols(kHeads * 40, 40),
                            .num_heads = kHeads,
                            .nope_dim = 8,
                            .kv_norm = std::span(p).first(8),
                            .norm_eps = 1e-6f,
                            .style = RopeConfig::Style::interleaved,
                            .cos = cos,
                            .sin = sin,
                            .slots = latent_slots,
                            .q_out = MatrixView::of(View<Bf16>(y.data(), kRows, kHeads * 64)),
                            .kv = latents});
  row_stats(backend, rows_of_x, stats);
  exp_row(backend, {x.data(), kQkv}, stats[0].max, p);
  EXPECT_EQ(num_allocations - before, 0);
  EXPECT_GT(before, 0);
}

TEST(AllocationTest, LatentAttentionAllocatesNothing) {
  for (DType stored : {DType::bf16, DType::int8}) {
    auto b = cases::latent_attention_batch<Bf16>(cases::latent_attention_cases()[1], 1, stored);
    WorkerPool workers({.num_workers = 2});
    Backend backend =
        *Backend::create(detect_isa(), workers, latent_attention_scratch_bytes(b.latent_shape()));
    const auto matrix = [&](std::vector<Bf16>& memory, int64_t cols) {
      memory.resize(b.num_rows * cols);
      return MatrixView::of(View<Bf16>(memory.data(), b.num_rows, cols));
    };
    std::vector<Bf16> memory[3];
    const MatrixView out = matrix(memory[0], b.out_cols()),
                     q_absorbed = matrix(memory[1], b.shape.num_heads * b.kv.shape.row_elements()),
                     y_absorbed = matrix(memory[2], b.shape.num_heads * b.kv.shape.rope_offset());
    AttentionPlan plan;
    plan.reserve(static_cast<int>(b.sequences.size()), b.num_rows);
    const int64_t before = num_allocations;
    plan.sequences.assign(b.sequences.begin(), b.sequences.end());
    plan.build(b.shape.num_heads, b.kv.shape);
    latent_attention(backend, {.q = MatrixView::of(View<Bf16>(b.q.data(), b.num_rows, b.q_cols())),
                               .kv = b.kv,
                               .plan = plan,
                               .scale = b.scale,
                               .heads = {b.key_up, b.value_up, b.key_absorb},
                               .nope_dim = b.shape.nope_dim,
                               .rope_dim = b.shape.rope_dim,
                               .value_dim = b.shape.value_dim,
                               .q_absorbed = q_absorbed,
                               .y_absorbed = y_absorbed,
                               .out = out});
    EXPECT_EQ(num_allocations - before, 0);
  }
}

TEST(AllocationTest, ProductsAllocateNothing) {
  const cases::ExpertsCase shape = {96, 160, {3, 0, 70}};
  std::mt19937 random(1);
  WorkerPool workers({.num_workers = 2});
  Backend backend =
      *Backend::create(detect_isa(), workers,
                       scratch_bytes_for({.max_rows = 73,
                                          .max_k = 160,
                                          .num_heads = 1,
                                          .kv = {.num_heads = 1, .key_dim = 32, .value_dim = 32}}));
  const auto x = cases::padded_rows<Bf16>(73, 96, 0, cases::Values::normal, random);
  const auto middle = cases::padded_rows<Bf16>(73, 160, 0, cases::Values::normal, random);
  const auto offsets = cases::offsets_of(shape.rows);
  std::vector<float> y(73 * 320);
  for (WeightFormat format :
       {WeightFormat::bf16, WeightFormat::fp8, WeightFormat::int8, WeightFormat::int4,
        WeightFormat::mxfp4, WeightFormat::mxfp8, WeightFormat::nvfp4, WeightFormat::q8_0,
        WeightFormat::q4_k, WeightFormat::q5_k, WeightFormat::q6_k, WeightFormat::iq4,
        WeightFormat::q3_k}) {
    const int group = is_mx(format) ? cases::mx_group(format)
                      : has_block_scales(format) || format == WeightFormat::q8_0 ? kGgufGroup
                                                                                 : kFp8Group;
    const auto experts = cases::make_experts(shape, format, group, random);
    const int64_t before = num_allocations;
    linear(backend, MatrixView::of(x.view), experts.weights[0].gate_up,
           View<float>(y.data(), 73, 320), StoreMode::add);
    run_experts(backend,
                {MatrixView::of(x.view), offsets, experts.weights, 160, MatrixView::of(middle.view),
                 MatrixView::of(View<float>(y.data(), 73, 96))});
    EXPECT_EQ(num_allocations - before, 0) << weight_format_name(format);
  }
}

}  // namespace
}  // namespace hocket
