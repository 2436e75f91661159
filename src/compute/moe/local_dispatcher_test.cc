#include "compute/moe/local_dispatcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "compute/moe/testing.h"

namespace hocket {
namespace {

constexpr int kHidden = 32, kExperts = 8, kTopK = 3, kRows = 11;

ModelConfig config() {
  return one_moe_layer(kExperts, kTopK, kHidden);
}

// Rows of known numbers, routed at random to different experts.
class LocalDispatch : public ::testing::Test {
 protected:
  LocalDispatch()
      : workers_({.num_workers = 2}),
        backend_(*Backend::create(Isa::ref, workers_, 1 << 16)),
        work_(
            *WorkBuffers::create(config(), DType::f32,
                                 {.max_rows = kRows, .max_output_rows = 1, .max_logits_rows = 1})) {
    fill();
  }
  void fill() {
    std::mt19937 random(3);
    const View<float> normed = work_.normed.as<float>();
    for (int64_t t = 0; t < kRows; ++t) {
      for (int64_t i = 0; i < kHidden; ++i) normed.row(t)[i] = static_cast<float>(t * 100 + i);
      std::array<int32_t, kExperts> experts{};
      for (int e = 0; e < kExperts; ++e) experts[e] = e;
      std::ranges::shuffle(experts, random);
      for (int s = 0; s < kTopK; ++s) {
        work_.expert_ids.row(t)[s] = experts[s];
        work_.expert_weights.row(t)[s] = 0.25f * static_cast<float>(s + 1);
      }
    }
  }

  // Dispatches rows [begin, begin + count) as half `index`.
  Half dispatched(LocalDispatcher& dispatcher, int index, int begin, int count) {
    Half half{.index = index, .rows = {begin, count}};
    half.state.normed.set(work_.normed.slice_rows(begin, count));
    half.state.routing.set({.ids = work_.expert_ids.slice_rows(begin, count),
                            .weights = work_.expert_weights.slice_rows(begin, count)});
    dispatcher.dispatch_start(context(), half);
    dispatcher.dispatch_wait(context(), half);
    return half;
  }

  ExchangeContext context() { return {backend_, work_}; }

  WorkerPool workers_;
  Backend backend_;
  WorkBuffers work_;
};

TEST_F(LocalDispatch, SortsRowsByExpertInSourceOrder) {
  LocalDispatcher dispatcher(config(), 1);
  Half half = dispatched(dispatcher, 0, 0, kRows);
  const ExpertRows& rows = half.state.arrived.peek();
  ASSERT_EQ(rows.offsets.front(), 0);
  ASSERT_EQ(rows.offsets.back(), kRows * kTopK);
  for (int e = 0; e < kExperts; ++e) {
    float last = -1;
    for (int r = rows.offsets[e]; r < rows.offsets[e + 1]; ++r) {
      const float first = rows.x.as<float>().row(r)[0];  // 100 t
      EXPECT_GT(first, last);
      last = first;
      const auto t = static_cast<int64_t>(first / 100);
      const int32_t* ids = work_.expert_ids.row(t);
      EXPECT_NE(std::find(ids, ids + kTopK, e), ids + kTopK);
    }
  }
}

TEST_F(LocalDispatch, IdentityExpertsGiveTheWeightedSumBack) {
  for (const int groups : {1, 2, 4, 8}) {
    std::ranges::fill(std::span(work_.residual.data, work_.residual.stride * kRows), 1.0f);
    LocalDispatcher dispatcher(config(), groups);
    Half half = dispatched(dispatcher, 0, 0, kRows);
    const ExpertRows rows = half.state.arrived.take();
    for (int64_t r = 0; r < rows.x.rows; ++r)
      std::copy_n(rows.x.as<float>().row(r), kHidden, rows.y.as<float>().row(r));
    half.state.computed.set(rows);
    dispatcher.combine_start(context(), half);
    dispatcher.combine_wait(context(), half);
    EXPECT_TRUE(half.state.empty());
    for (int64_t t = 0; t < kRows; ++t)
      for (int64_t i = 0; i < kHidden; ++i)  // weights sum to 1.5
        EXPECT_FLOAT_EQ(work_.residual.row(t)[i], 1.0f + 1.5f * static_cast<float>(t * 100 + i));
  }
}

TEST_F(LocalDispatch, RowsGoThroughInt8WhereToldTo) {
  work_ = *WorkBuffers::create(config(), DType::f32, {.max_rows = kRows, .int8_dispatch = true});
  fill();
  const std::vector<float> before(work_.normed.as<float>().data,
                                  work_.normed.as<float>().row(kRows));
  LocalDispatcher dispatcher(config(), 1);
  Half half = dispatched(dispatcher, 1, 2, kRows - 2);
  const ExpertRows& rows = half.state.arrived.peek();
  ASSERT_EQ(rows.offsets.back(), (kRows - 2) * kTopK);
  for (int64_t t = 2; t < kRows; ++t)
    for (int s = 0; s < kTopK; ++s) {
      const float* const row = rows.x.as<float>().row(work_.expert_position.row(t)[s]);
      const auto amax = static_cast<float>(t * 100 + kHidden - 1);
      for (int64_t i = 0; i < kHidden; ++i) {
        const float q = std::nearbyint(static_cast<float>(t * 100 + i) * (127 / amax));
        ASSERT_EQ(row[i], q * (amax / 127)) << t << " " << i;
      }
    }
  // Shared experts get the rows without rounding to int8.
  EXPECT_TRUE(std::ranges::equal(before, std::span(work_.normed.as<float>().data, before.size())));
}

TEST_F(LocalDispatch, HalvesDoNotTouchEachOther) {
  LocalDispatcher dispatcher(config(), 1);
  Half a = dispatched(dispatcher, 0, 0, 4);
  Half b = dispatched(dispatcher, 1, 4, kRows - 4);
  EXPECT_EQ(a.state.arrived.peek().offsets.back(), 4 * kTopK);
  EXPECT_EQ(b.state.arrived.peek().offsets.back(), (kRows - 4) * kTopK);
  const View<float> x = a.state.arrived.peek().x.as<float>();
  for (int64_t r = 0; r < x.rows; ++r) EXPECT_LT(x.row(r)[0], 400);
}

}  // namespace
}  // namespace hocket
