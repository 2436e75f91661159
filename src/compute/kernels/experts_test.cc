#include "compute/kernels/experts.h"

#include <gtest/gtest.h>

#include <cstring>

#include "compute/kernels/cases/experts_cases.h"
#include "compute/kernels/cases/plain_products.h"
#include "compute/kernels/choose.h"

namespace hocket {
namespace {

using cases::ExpertsCase;
using cases::Values;

// Computes one expert after the other, with gate and up as separate matrices and nothing fused.
template <class T>
std::vector<float> expected_rows(const ExpertsCase& c, const cases::Experts& experts, View<T> x) {
  std::vector<float> y;
  const auto offsets = cases::offsets_of(c.rows);
  const auto& rows = row_kernels(Isa::ref).of<T>();
  const int64_t padded = round_up(c.intermediate, kBlockK);
  for (size_t e = 0; e < c.rows.size(); ++e) {
    const auto mine = MatrixView::of(x.slice_rows(offsets[e], c.rows[e]));
    const std::vector<float> gate = cases::plain_product(mine, experts.gate[e].weight);
    const std::vector<float> up = cases::plain_product(mine, experts.up[e].weight);
    std::vector<T> middle(c.rows[e] * padded);
    for (int row = 0; row < c.rows[e]; ++row)
      rows.swiglu(&gate[row * c.intermediate], &up[row * c.intermediate], c.intermediate,
                  &middle[row * padded]);
    const View<T> view(middle.data(), c.rows[e], c.intermediate, padded);
    const auto out = cases::plain_product(MatrixView::of(view), experts.down[e].weight);
    y.insert(y.end(), out.begin(), out.end());
  }
  return y;
}

// Returns the same as run_experts(), but cuts each expert's rows into three runs. Their gate and up
// products are computed together, their down products one run after the other.
template <class T, class Out>
std::vector<Out> computed_in_runs(Backend& backend, const ExpertsCase& c,
                                  const cases::Experts& experts, View<T> x) {
  constexpr int kRuns = 3;
  const auto offsets = cases::offsets_of(c.rows);
  std::vector<int32_t> starts, sources;  // [runs][experts + 1]; the row of x
  for (int run = 0; run < kRuns; ++run)
    for (size_t e = 0; e <= c.rows.size(); ++e) {
      starts.push_back(static_cast<int32_t>(sources.size()));
      if (e == c.rows.size()) continue;
      for (int i = run * c.rows[e] / kRuns; i < (run + 1) * c.rows[e] / kRuns; ++i)
        sources.push_back(offsets[e] + i);
    }
  std::vector<T> rows(sources.size() * x.stride),
      middle(sources.size() * round_up(c.intermediate, kBlockK));
  for (size_t i = 0; i < sources.size(); ++i)
    std::copy_n(x.row(sources[i]), x.stride, &rows[i * x.stride]);
  const auto num_rows = static_cast<int64_t>(sources.size());
  std::vector<Out> y(num_rows * c.hidden), sorted(y.size());
  ExpertsCall call = {MatrixView::of(View<T>(rows.data(), num_rows, x.cols, x.stride)),
                      starts,
                      experts.weights,
                      c.intermediate,
                      MatrixView::of(View<T>(middle.data(), num_rows, c.intermediate,
                                             round_up(c.intermediate, kBlockK))),
                      MatrixView::of(View<Out>(y.data(), num_rows, c.hidden))};
  run_gate_up(backend, call);
  for (int run = 0; run < kRuns; ++run) {
    call.offsets = std::span(starts).subspan(run * (c.rows.size() + 1), c.rows.size() + 1);
    run_down(backend, call);
  }
  for (size_t i = 0; i < sources.size(); ++i)
    std::copy_n(&y[i * c.hidden], c.hidden, &sorted[int64_t{sources[i]} * c.hidden]);
  return sorted;
}

// Out is the type of y.
template <class T, class Out>
void expect_experts(const ExpertsCase& c, WeightFormat format, int group, uint32_t seed) {
  std::mt19937 random(seed);
  const auto experts = cases::make_experts(c, format, group, random);
  const auto offsets = cases::offsets_of(c.rows);
  const int rows = offsets.back();
  const auto x = cases::padded_rows<T>(rows, c.hidden, 8, Values::normal, random);
  const std::vector<float> sums = expected_rows<T>(c, experts, x.view);
  std::vector<Out> expected(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) expected[i] = from_float<Out>(sums[i]);
  std::vector<Isa> isas = cases::vector_isas();
  isas.push_back(Isa::ref);
  for (Isa isa : isas) {
    for (int num_workers : {1, 2}) {
      WorkerPool workers({num_workers, {}, 1000});
      const ScratchNeed need{.max_rows = rows,
                             .max_k = std::max(c.hidden, c.intermediate),
                             .num_heads = 1,
                             .kv = {.num_heads = 1, .key_dim = 32, .value_dim = 32},
                             .dtype = dtype_of<T>};
      Backend backend = *Backend::create(isa, workers, scratch_bytes_for(need));
      const auto middle =
          cases::padded_rows<T>(rows, c.intermediate, 0, Values::heavy_tails, random);
      std::vector<Out> y(expected.size());
      run_experts(backend, {MatrixView::of(x.view), offsets, experts.weights, c.intermediate,
                            MatrixView::of(middle.view),
                            MatrixView::of(View<Out>(y.data(), rows, c.hidden))});
      ASSERT_TRUE(y.empty() || std::memcmp(y.data(), expected.data(), y.size() * sizeof(Out)) == 0)
          << isa_name(isa) << " " << weight_format_name(format) << " group " << group << " hidden "
          << c.hidden << " workers " << num_workers;
      y = computed_in_runs<T, Out>(backend, c, experts, x.view);
      ASSERT_TRUE(y.empty() || std::memcmp(y.data(), expected.data(), y.size() * sizeof(Out)) == 0)
          << "in runs, " << isa_name(isa) << " " << weight_format_name(format);
    }
  }
}

TEST(Experts, EqualToPlainProductsOneExpertAfterTheOther) {
  flush_denormals();
  uint32_t seed = 1;
  for (const ExpertsCase& c : cases::experts_cases()) {
    expect_experts<Bf16, Bf16>(c, WeightFormat::bf16, 0, seed++);
    expect_experts<Bf16, float>(c, WeightFormat::bf16, 0, seed++);
    expect_experts<float, float>(c, WeightFormat::f32, 0, seed++);
    expect_experts<Bf16, Bf16>(c, WeightFormat::fp8, kFp8Group, seed++);
    expect_experts<Bf16, Bf16>(c, WeightFormat::int8, 0, seed++);
    expect_experts<Bf16, float>(c, WeightFormat::int4, 32, seed++);
    expect_experts<Bf16, Bf16>(c, WeightFormat::q8_0, kGgufGroup, seed++);
    expect_experts<Bf16, Bf16>(c, WeightFormat::q4_k, kGgufGroup, seed++);
    expect_experts<Bf16, float>(c, WeightFormat::iq3_s, kGgufGroup, seed++);
    expect_experts<Bf16, Bf16>(c, WeightFormat::q5_k, kGgufGroup, seed++);
    expect_experts<Bf16, float>(c, WeightFormat::q6_k, kGgufGroup, seed++);
    expect_experts<Bf16, Bf16>(c, WeightFormat::mxfp4, kMxGroup, seed++);
    expect_experts<Bf16, float>(c, WeightFormat::mxfp8, kMxGroup, seed++);
    expect_experts<Bf16, Bf16>(c, WeightFormat::nvfp4, kNvfp4Group, seed++);
    if (HasFatalFailure()) return;
  }
}

TEST(Experts, RowsThatDoNotFitIntoScratchAreComputedInPasses) {
  flush_denormals();
  uint32_t seed = 1;
  // Scratch holds 128 rows of such a length for each worker: a pass ends between experts, or, in
  // the second case, inside one.
  for (const ExpertsCase& c : {ExpertsCase{8200, 24, {90, 0, 80, 100}}, {8200, 24, {20, 300, 1}}}) {
    expect_experts<Bf16, Bf16>(c, WeightFormat::int8, 0, seed++);
    expect_experts<Bf16, float>(c, WeightFormat::int4, 32, seed++);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace hocket
