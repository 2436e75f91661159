#include "compute/kernels/attention_gate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "compute/kernels/cases/row_cases.h"
#include "compute/kernels/row_kernels.h"

namespace hocket {
namespace {

constexpr int kGateRows = 9, kGateHeads = 3, kGateDim = 20;

template <class T>
std::vector<T> gated(Isa isa, int num_workers) {
  std::mt19937 random(3);
  const auto gates = cases::random_row(kGateRows * kGateHeads, 4, random);
  std::vector<T> x;
  for (const float v : cases::random_row(kGateRows * kGateHeads * kGateDim, 1, random))
    x.push_back(from_float<T>(v));
  WorkerPool workers({.num_workers = num_workers});
  Backend backend = *Backend::create(isa, workers, 0);
  gate_heads(backend, View<const float>(gates.data(), kGateRows, kGateHeads),
             MatrixView::of(View<T>(x.data(), kGateRows, kGateHeads * kGateDim)));
  return x;
}

TEST(AttentionGateTest, EachHeadIsMultipliedByItsSigmoid) {
  std::mt19937 random(3);
  const auto gates = cases::random_row(kGateRows * kGateHeads, 4, random);
  const auto before = cases::random_row(kGateRows * kGateHeads * kGateDim, 1, random);
  const std::vector<float> got = gated<float>(Isa::ref, 1);
  for (size_t i = 0; i < got.size(); ++i) {
    const double sigmoid = 1 / (1 + std::exp(-double{gates[i / kGateDim]}));
    EXPECT_NEAR(got[i], before[i] * sigmoid, 1e-6);
  }
}

TEST(AttentionGateTest, EveryBodyGivesTheBitsOfRef) {
  const auto expect = [](auto t) {
    using T = decltype(t);
    const std::vector<T> want = gated<T>(Isa::ref, 1);
    for (Isa isa : cases::vector_isas())
      for (const int workers : {1, 3})
        EXPECT_TRUE(cases::same_bits(gated<T>(isa, workers), want)) << isa_name(isa);
  };
  expect(Bf16{});
  expect(float{});
}

// A score far below the cap hardly changes, and none passes it.
TEST(SoftCapTest, IsTheFormulaInEveryBody) {
  const std::vector<float> scores = {-500, -30, -4, -0.01f, 0, 0.01f, 4, 30, 500};
  const auto n = std::ssize(scores);
  std::vector<float> want = scores;
  row_kernels(Isa::ref).soft_cap(0.5f, 30, n, want.data());
  for (int i = 0; i < n; ++i) {
    EXPECT_NEAR(want[i], 30 * std::tanh(scores[i] * 0.5 / 30), 1e-5);
    EXPECT_LE(std::abs(want[i]), 30);
  }
  for (Isa isa : cases::vector_isas()) {
    std::vector<float> got = scores;
    row_kernels(isa).soft_cap(0.5f, 30, n, got.data());
    EXPECT_TRUE(cases::same_bits(got, want)) << isa_name(isa);
  }
}

}  // namespace
}  // namespace hocket
