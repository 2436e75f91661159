#include "bench/wide_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "bench/overlap_shape.h"
#include "compute/overlap/stage_testing.h"
#include "compute/overlap/testing.h"

namespace hocket {
namespace {

// Returns what a layer takes in the steady state, where transfers share a link or have only
// latency.
double layer_us(const Order& order, const StageTimes& stages, bool as_latency) {
  std::array halves = {stages, stages};
  if (as_latency)
    for (StageTimes& half : halves) {
      half.dispatch = {0, half.dispatch.busy_us};
      half.combine = {0, half.combine.busy_us};
    }
  const auto step_us = [&](int num_moe) {
    return Predictor(halves, {}, {.num_moe = num_moe, .has_shared = true}).step_us(order);
  };
  return (step_us(120) - step_us(60)) / 60;
}

struct MinTimes {
  double named = 1e18, all = 1e18;
};

MinTimes min_us(const StageTimes& stages, bool as_latency) {
  MinTimes least;
  for (int order = 0; order < all_orders().size(); ++order) {
    if (all_orders().at(order).num_halves != 2) continue;
    const double us = layer_us(all_orders().at(order), stages, as_latency);
    least.all = std::min(least.all, us);
    if (order < all_orders().user_begin()) least.named = std::min(least.named, us);
  }
  return least;
}

TEST(WideSearch, GainsMostWhereTransfersFlyTogether) {
  std::mt19937 random(3);
  constexpr int kRounds = 60;
  double link = 0, free = 0;
  for (int round = 0; round < kRounds; ++round) {
    const StageTimes stages = testing::StageTimeSampler{}(random);
    for (const bool as_latency : {false, true}) {
      const MinTimes least = min_us(stages, as_latency);
      (as_latency ? free : link) += 100 * (least.named / least.all - 1) / kRounds;
    }
  }
  fmt::print(
      "the best of all beats the best published by {:.1f} % on one link, {:.1f} % where "
      "transfers do not share one\n",
      link, free);
  EXPECT_GE(link, 0);
  EXPECT_GT(free, link);
}

// Draws any legal orders, also unreasonable ones, to show that the table holds those worth having.
TEST(WideSearch, HardlyAnyOrderBeatsTheTable) {
  std::mt19937 random(4);
  std::vector<Order> others;
  for (int i = 0; i < 3000; ++i) others.push_back(testing::random_order(random));
  double worst = 0;
  for (int round = 0; round < 40; ++round) {
    const StageTimes stages = testing::StageTimeSampler{}(random);
    const bool as_latency = round % 2 == 0;
    double other = 1e18;
    for (const Order& order : others) other = std::min(other, layer_us(order, stages, as_latency));
    worst = std::max(worst, min_us(stages, as_latency).all / other - 1);
  }
  fmt::print("of 3,000 random orders the best beats the table by {:.1f} % at most\n", 100 * worst);
  EXPECT_LT(worst, 0.01);
}

// The times of the slowest rank where experts are chosen unevenly: it gets `skew` times its share
// of the rows.
class SkewedTimes final : public StageModel {
 public:
  SkewedTimes(const ShapeTimes& even, double skew) : even_(even), skew_(skew) {}
  StageTimes at(const Bucket& bucket) const override {
    StageTimes times = even_.at(bucket);
    for (const Op op : {Op::experts, Op::dispatch_wait, Op::combine_start}) times.of(op) *= skew_;
    times.dispatch.busy_us *= skew_, times.combine.busy_us *= skew_;
    return times;
  }

 private:
  const ShapeTimes& even_;
  const double skew_;
};

// Draws ranks, links, cores, rows and skew from lists. The best is that of the named orders at all
// shares and in all parts.
TEST(WideSearch, TheChoiceIsNearTheBestOnAnyRanksLinksAndCores) {
  std::mt19937 random(6);
  const auto one_of = [&](const auto& list) { return list[random() % std::size(list)]; };
  constexpr int kRanks[] = {2, 3, 4, 8, 16, 32, 64}, kRows[] = {1, 2, 5, 16, 64, 200, 700, 2048};
  constexpr double kGbit[] = {0.2, 1, 10, 25, 100, 400}, kLatencyUs[] = {5, 20, 100};
  constexpr double kCores[] = {0.1, 1, 4}, kSkews[] = {1, 1.2, 2};
  double worst = 1;
  for (int round = 0; round < 200; ++round) {
    OverlapShape shape = one_of(overlap_shapes());
    const double cores = one_of(kCores);
    shape.read_bytes_per_s *= cores, shape.operations_per_s *= cores;
    const ShapeTimes even(shape, one_of(kRanks), {one_of(kGbit), one_of(kLatencyUs)});
    const SkewedTimes model(even, one_of(kSkews));
    LayerCounts layers = shape.layers();
    layers.num_moe = 12;
    const Phase phase = random() % 2 == 0 ? Phase::decode : Phase::prefill;
    const SearchInput input{.model = model,
                            .orders = OrderTable::builtin(),
                            .layers = layers,
                            .bucket = ShapeTimes::bucket_of(phase, one_of(kRows))};
    const double ratio = best_of_all(input).step_us / search(input).best().step_us;
    EXPECT_GE(ratio, 0.99) << "round " << round;
    worst = std::min(worst, ratio);
  }
  fmt::print("the choice is at worst at {:.4f} of the best of 200 points\n", worst);
}

// The points of answers that `hocket bench overlap` plays, with fewer layers.
TEST(WideSearch, TheChoiceIsNearTheBestAtThePointsOfTheBench) {
  double worst = 1;
  for (const OverlapShape& shape : overlap_shapes())
    for (const int ranks : {2, 4})
      for (const double gbit : {0.2, 1.0, 2.5, 10.0})
        for (const int rows : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}) {
          const ShapeTimes model(shape, ranks, {.gbit = gbit});
          LayerCounts layers = shape.layers();
          layers.num_moe = 12;
          const SearchInput input{.model = model,
                                  .orders = OrderTable::builtin(),
                                  .layers = layers,
                                  .bucket = ShapeTimes::bucket_of(Phase::decode, rows)};
          const double ratio = best_of_all(input).step_us / search(input).best().step_us;
          EXPECT_GE(ratio, 0.99) << shape.name << ", " << ranks << " ranks, " << gbit << " Gbit/s, "
                                 << rows << " rows";
          worst = std::min(worst, ratio);
        }
  fmt::print("the choice is at worst at {:.4f} of the best of the bench's points\n", worst);
}

// Compares with all plans, one by one.
TEST(WideSearch, FindsTheBestOfAll) {
  std::mt19937 random(5);
  for (const OverlapShape& shape : overlap_shapes())
    for (const Phase phase : {Phase::decode, Phase::prefill}) {
      const int rows = static_cast<int>(2 + random() % 30);
      const ShapeTimes model(shape, 2, {.gbit = 1});
      LayerCounts layers = shape.layers();
      layers.num_moe = 3;
      const SearchInput input{.model = model,
                              .orders = all_orders(),
                              .layers = layers,
                              .bucket = ShapeTimes::bucket_of(phase, rows)};
      double least = 1e18;
      for (int order = 0; order < all_orders().size(); ++order)
        for (const Grain& grain : kTuning.grains)
          for (int share = 1; share < kWholeShare; ++share)
            if (all_orders().at(order).num_halves == 2 || share == kEvenShare)
              least = std::min(
                  least, predict_plan(input, {order, grain.parts, grain.waves, share}).step_us);
      const Candidate best = best_of_all(input);
      EXPECT_EQ(best.step_us, least);
      EXPECT_EQ(predict_plan(input, best.plan).step_us, least);
      EXPECT_GE(search(input).best().step_us, least);
    }
}

}  // namespace
}  // namespace hocket
