#include "compute/kernels/experts.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "compute/kernels/cases/experts_cases.h"
#include "compute/kernels/choose.h"
#include "compute/kernels/linear.h"
#include "compute/kernels/product_kernels.h"
#include "compute/kernels/row_kernels.h"

namespace hocket {
namespace {

using cases::ExpertsCase;
using cases::Values;

// y = x . w by ref, straight from row-major weights [n, k].
template <class T>
std::vector<float> multiply(View<const T> x, const std::vector<T>& w, int n) {
  const int k = static_cast<int>(x.cols);
  std::vector<float> y(x.rows * n);
  for (int64_t row = 0; row < x.rows; ++row)
    for (int column = 0; column < n; ++column) {
      float c = 0;
      for (int begin = 0; begin < k; begin += kBlockK) {
        float sums[2] = {0, 0};
        for (int i = begin; i < std::min(k, begin + kBlockK); ++i)
          sums[i % 2] =
              std::fma(to_float(x.row(row)[i]), to_float(w[int64_t{column} * k + i]), sums[i % 2]);
        c += sums[0] + sums[1];
      }
      y[row * n + column] = c;
    }
  return y;
}

// One expert after the other, gate and up as matrices of their own: nothing packed, nothing fused.
template <class T>
std::vector<float> expected_rows(const ExpertsCase& c, const cases::Experts<T>& experts,
                                 View<const T> x) {
  std::vector<float> y;
  const auto offsets = cases::offsets_of(c.rows);
  const auto& rows = row_kernels(Isa::ref).of<T>();
  for (size_t e = 0; e < c.rows.size(); ++e) {
    const View<const T> mine = x.slice_rows(offsets[e], c.rows[e]);
    const std::vector<float> gate = multiply(mine, experts.plain[e].gate, c.intermediate);
    const std::vector<float> up = multiply(mine, experts.plain[e].up, c.intermediate);
    std::vector<T> middle(gate.size());
    rows.swiglu(gate.data(), up.data(), static_cast<int64_t>(gate.size()), middle.data());
    const std::vector<float> out = multiply(View<const T>(middle.data(), c.rows[e], c.intermediate),
                                            experts.down[e].rows, c.hidden);
    y.insert(y.end(), out.begin(), out.end());
  }
  return y;
}

// Out: the type of y.
template <class T, class Out>
void expect_experts(const ExpertsCase& c, uint32_t seed) {
  std::mt19937 random(seed);
  const auto experts = cases::make_experts<T>(c, random);
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
      const ScratchNeed need{rows,
                             std::max(c.hidden, c.intermediate),
                             1,
                             {.num_heads = 1, .key_dim = 32, .value_dim = 32}};
      Backend backend = *Backend::create(isa, workers, scratch_bytes_for(need));
      const auto middle =
          cases::padded_rows<T>(rows, c.intermediate, 0, Values::heavy_tails, random);
      std::vector<Out> y(expected.size());
      run_experts(backend, {MatrixView::of(x.view), offsets, experts.weights, c.intermediate,
                            MatrixView::of(middle.view),
                            MatrixView::of(View<Out>(y.data(), rows, c.hidden))});
      ASSERT_TRUE(y.empty() || std::memcmp(y.data(), expected.data(), y.size() * sizeof(Out)) == 0)
          << isa_name(isa) << " hidden " << c.hidden << " workers " << num_workers;
    }
  }
}

TEST(Experts, EqualToPlainProductsOneExpertAfterTheOther) {
  flush_denormals();
  uint32_t seed = 1;
  for (const ExpertsCase& c : cases::experts_cases()) {
    expect_experts<Bf16, Bf16>(c, seed++);
    expect_experts<Bf16, float>(c, seed++);
    expect_experts<float, float>(c, seed++);
  }
}

}  // namespace
}  // namespace hocket
