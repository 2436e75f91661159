#include "compute/moe/gate.h"

#include <gmock/gmock.h>

#include <array>

#include "compute/moe/testing.h"

namespace hocket {
namespace {

using ::testing::ElementsAre;

// Rows are multiplied by their weights and rounded; the outputs then have the weight 1.
TEST(WeighInputs, TheWeightMovesFromTheOutputToTheInput) {
  ModelConfig model = one_moe_layer(4, 1, 32);
  model.moe.weighted_inputs = true;
  WorkBuffers work = *WorkBuffers::create(model, DType::bf16, {4, 4, 4});
  WorkerPool workers({});
  Backend backend = *Backend::create(Isa::ref, workers, 0);
  Half half;
  half.rows = {1, 2};
  const MatrixView normed = work.normed.slice_rows(1, 2);
  for (int r = 0; r < 2; ++r) {
    for (int c = 0; c < 32; ++c) normed.as<Bf16>().row(r)[c] = from_float<Bf16>(c - 7.0f);
    *work.expert_weights.row(1 + r) = 0.3f + r;
  }
  half.state.normed.set(normed);
  half.state.routing.set(
      {.ids = {}, .weights = work.expert_weights.slice_rows(1, 2), .logits = {}});
  weigh_inputs(backend, work, half);
  const View<Bf16> got = half.state.normed.take().as<Bf16>();
  for (int r = 0; r < 2; ++r) {
    for (int c = 0; c < 32; ++c)
      EXPECT_EQ(got.row(r)[c].bits, from_float<Bf16>((c - 7.0f) * (0.3f + r)).bits);
    EXPECT_EQ(*work.expert_weights.row(1 + r), 1);
  }
  EXPECT_EQ(got.data, work.leaving.slice_rows(1, 2).as<Bf16>().data);
  half.state.routing.take();
}

TEST(CountChoices, AddsUpEveryChoiceOfEveryRow) {
  // Rows have a stride of 4: the numbers between them are not choices.
  std::array<int32_t, 12> ids = {4, 0, 2, 9,  //
                                 2, 4, 1, 9,  //
                                 4, 2, 5, 9};
  std::array<uint32_t, 6> counts{};
  const View<const int32_t> rows(ids.data(), 3, 3, 4);
  count_choices(rows, counts);
  EXPECT_THAT(counts, ElementsAre(1, 1, 3, 0, 3, 1));
  count_choices(rows.slice_rows(1, 1), counts);  // the other half of a batch
  EXPECT_THAT(counts, ElementsAre(1, 2, 4, 0, 4, 1));
  count_choices(rows.slice_rows(0, 0), counts);
  EXPECT_THAT(counts, ElementsAre(1, 2, 4, 0, 4, 1));
}

}  // namespace
}  // namespace hocket
