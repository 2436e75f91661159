// Compares the search with each of its plans, predicted alone.
#include "compute/overlap/search.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <tuple>

#include "compute/overlap/explain.h"
#include "compute/overlap/stage_testing.h"
#include "compute/overlap/testing.h"

namespace hocket {
namespace {

// Returns `whole` at `rows`. The fraction `floor` of each compute time is constant, the rest is
// proportional to rows.
class ScaledTimes final : public StageModel {
 public:
  ScaledTimes(const StageTimes& whole, int rows, double floor)
      : whole_(whole), rows_(rows), floor_(floor) {}
  StageTimes at(const Bucket& bucket) const override {
    const double scale = floor_ + (1 - floor_) * bucket.rows / rows_;
    StageTimes times = whole_;
    for (double& time : times.compute) time *= scale;
    times.dispatch.busy_us *= static_cast<double>(bucket.rows) / rows_;
    times.combine.busy_us *= static_cast<double>(bucket.rows) / rows_;
    return times;
  }

 private:
  StageTimes whole_;
  int rows_;
  double floor_;
};

constexpr LayerCounts kLayers{.num_dense = 1, .num_moe = 16, .has_shared = true, .other_us = 50};

const Candidate& best_of(const SearchResult& answer, PlanKind kind) {
  return answer.best_of[static_cast<size_t>(kind)];
}

// The candidates are every named order in every number of parts and waves; two halves are cut at a
// share that is no worse than the even one. Each is predicted as alone, and the best of each kind
// is known.
TEST(Search, PredictsEveryCandidateAndKnowsTheBest) {
  std::mt19937 random(11);
  const OrderTable& table = OrderTable::builtin();
  for (int round = 0; round < 200; ++round) {
    const testing::StageTimeSampler draw{.latency_us = static_cast<double>(random() % 4 * 30)};
    const int rows = static_cast<int>(2 + random() % 200);
    const ScaledTimes model(draw(random), rows, random() % 3 * 0.3);
    const SearchInput input{.model = model,
                            .orders = table,
                            .layers = kLayers,
                            .bucket = {Phase::decode, rows, 1000},
                            .row_tile = round % 2 == 0 ? 1 : 16};
    const SearchResult found = search(input);
    std::array<double, kNumPlanKinds> least{};
    for (const Grain& grain : kTuning.grains)
      for (int order = 0; order < table.size(); ++order) {
        const Plan plan{order, grain.parts, grain.waves};
        const auto it = std::ranges::find_if(found.candidates, [&](const Candidate& candidate) {
          return candidate.plan.equals_but_for_share(plan);
        });
        ASSERT_EQ(it == found.candidates.end(), table.at(order).forced_only) << round;
        if (it == found.candidates.end()) continue;
        ASSERT_EQ(it->step_us, predict_plan(input, it->plan).step_us) << round;
        ASSERT_TRUE(table.at(order).num_halves == 2 || it->plan == plan) << round;
        ASSERT_LE(it->step_us, predict_plan(input, plan).step_us) << round;
        ASSERT_EQ(it->kind, kind_of(it->plan, table)) << round;
        double& of_kind = least[static_cast<size_t>(it->kind)];
        if (of_kind == 0 || it->step_us < of_kind) of_kind = it->step_us;
      }
    for (size_t kind = 0; kind < kNumPlanKinds; ++kind)
      ASSERT_EQ(found.best_of[kind].step_us, least[kind]) << round;
    ASSERT_EQ(found.best().step_us, std::ranges::min(least)) << round;
    ASSERT_LE(found.lower_bound_us, found.best().step_us) << round;
    ASSERT_LE(found.candidates.size(), max_candidates(table));
  }
}

SearchInput question_of(const StageModel& model, int rows = 64) {
  return {.model = model,
          .orders = OrderTable::builtin(),
          .layers = kLayers,
          .bucket = {Phase::decode, rows, 0}};
}

// The times of a hybrid, and those of a model whose layers are all as its mean one.
class HybridTimes final : public StageModel {
 public:
  HybridTimes(const StageModel& model, double full_us, double linear_us)
      : model_(model), core_us_{full_us, linear_us} {}
  StageTimes at(const Bucket& bucket) const override {
    StageTimes times = model_.at(bucket);
    const double share = times.of(Op::attn_core);  // the whole batch's time
    times.of(Op::attn_in, 1) = times.of(Op::attn_in);
    for (int kind = 0; kind < 2; ++kind) times.of(Op::attn_core, kind) = share * core_us_.at(kind);
    return times;
  }

 private:
  const StageModel& model_;
  const std::array<double, 2> core_us_;
};

class MeanTimes final : public StageModel {
 public:
  MeanTimes(const StageModel& model, const LayerCounts& layers) : model_(model), layers_(layers) {}
  StageTimes at(const Bucket& bucket) const override {
    StageTimes times = model_.at(bucket);
    times.of(Op::attn_core) = times.mean_attention(layers_) - times.of(Op::attn_in);
    return times;
  }

 private:
  const StageModel& model_;
  const LayerCounts layers_;
};

TEST(Search, AHybridIsNotItsMeanLayer) {
  LayerCounts mean = kLayers;
  mean.num_dense = 0;
  LayerCounts hybrid = mean;
  hybrid.kinds = LayerKinds(std::array{AttentionKind::linear, AttentionKind::linear,
                                       AttentionKind::linear, AttentionKind::full});
  std::mt19937 random(17);
  const OrderTable& table = OrderTable::builtin();
  int num_other = 0;
  double sum = 0, worst = 0;
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    const testing::StageTimeSampler draw{.latency_us = 12};
    StageTimes drawn = draw(random);
    drawn.of(Op::attn_core) = 1;
    const ScaledTimes scaled(drawn, 64, 0);
    const double linear_us = draw.draw(random, 50, 200);
    const HybridTimes model(scaled, 5 * linear_us, linear_us);
    const Bucket bucket{Phase::decode, 64, 0};
    const SearchInput input{.model = model, .orders = table, .layers = hybrid, .bucket = bucket};
    const MeanTimes mean_model(model, hybrid);
    const SearchInput of_mean{
        .model = mean_model, .orders = table, .layers = mean, .bucket = bucket};
    // Both models compute as much, so a step without overlap takes as long.
    EXPECT_NEAR(predict_plan(input, {}).step_us, predict_plan(of_mean, {}).step_us, 1e-3);
    const Candidate best = search(input).best();
    const Plan as_mean = search(of_mean).best().plan;
    const double loss = predict_plan(input, as_mean).step_us / best.step_us - 1;
    num_other += as_mean == best.plan ? 0 : 1;
    sum += loss, worst = std::max(worst, loss);
  }
  fmt::print(
      "the mean layer's plan: another at {} of {} points, {:.2f} % slower on average, "
      "{:.2f} % at worst\n",
      num_other, kRounds, 100 * sum / kRounds, 100 * worst);
  EXPECT_GT(num_other, kRounds / 10);
  EXPECT_GT(worst, 0.02);
}

TEST(Search, HasNinetyCandidatesAndNoneTwice) {
  std::mt19937 random(12);
  const ScaledTimes model(testing::StageTimeSampler{}(random), 64, 0);
  EXPECT_EQ(search(question_of(model)).candidates.size(), 90u);
  for (const int rows : {1, 2, 3, 64}) {
    const SearchResult answer = search(question_of(model, rows));
    std::set<std::tuple<int, int, int>> seen;
    for (const auto& [plan, kind, us] : answer.candidates)
      EXPECT_TRUE(seen.emplace(plan.order, plan.parts, plan.waves).second);
    EXPECT_EQ(best_of(answer, PlanKind::two_batch).step_us > 0, rows > 1);
  }
}

// An answer that is used again holds nothing of the search before.
TEST(Search, AnswersAreUsedAgain) {
  std::mt19937 random(14);
  const ScaledTimes model(testing::StageTimeSampler{}(random), 64, 0.3);
  SearchResult used = search(question_of(model));
  for (const int rows : {1, 64}) {
    used = search(question_of(model, rows), std::move(used));
    const SearchResult fresh = search(question_of(model, rows));
    ASSERT_EQ(used.candidates.size(), fresh.candidates.size());
    EXPECT_EQ(used.best().plan, fresh.best().plan);
    EXPECT_EQ(used.lower_bound_us, fresh.lower_bound_us);
    EXPECT_EQ(explain(used), explain(fresh));
  }
}

// The input of a search whose explanation is tested. In each case one cause alone decides.
struct WhyCase {
  StageTimes whole;
  double floor = 0;
  int rows = 64;
};

std::string why_of(const WhyCase& given) {
  const ScaledTimes model(given.whole, 64, given.floor);
  SearchInput input = question_of(model, given.rows);
  input.layers.has_shared = false;  // so nothing of one half overlaps
  return explain(search(input));
}

StageTimes times(double attn, double experts, TransferTime dispatch, TransferTime combine) {
  StageTimes made;
  made.of(Op::attn_core) = attn;
  made.of(Op::experts) = experts;
  made.dispatch = dispatch, made.combine = combine;
  made.part_us = made.wave_us = 1e6;  // so rows travel in one message
  return made;
}

TEST(Search, SaysWhy) {
  EXPECT_EQ(why_of({times(100, 100, {0.5, 0.1}, {0.5, 0.1}), 0.5}),
            "two halves predicted -48 %: nothing to hide, the exchange is 0.6 % of the step");
  EXPECT_EQ(why_of({times(100, 100, {20, 0}, {20, 0}), 0.4}),
            "two halves predicted -17 %: splitting costs 33 %, hides 16 %");
  EXPECT_EQ(why_of({times(20, 20, {1, 150}, {1, 150}), 0.98}),
            "two halves predicted 0 %: 99 % of the exchange is latency");
  EXPECT_EQ(why_of({times(100, 100, {50, 0}, {50, 0}), 0, 1}), "too few rows for two halves");
  EXPECT_EQ(why_of({times(100, 100, {50, 0}, {50, 0}), 0}),
            "the exchange is 32 % of a step without overlap, 99 % of it hidden");
}

TEST(Search, SaysWhatIsTooSmall) {
  SearchResult answer;
  answer.reason = {.none = {.step_us = 100, .exposed_us = 40, .compute_us = 60},
                   .two = {.step_us = 104,
                           .exposed_us = 30,
                           .dispatch_exposed_us = 20,
                           .combine_exposed_us = 10,
                           .compute_us = 74},
                   .experts_us = 5,
                   .attn_us = 20};
  EXPECT_EQ(why_single_batch(answer.reason), "experts too small to cover dispatch");
  std::swap(answer.reason.experts_us, answer.reason.attn_us);
  EXPECT_EQ(why_single_batch(answer.reason), "attention too small to cover dispatch");
  answer.reason.two.combine_exposed_us = 25;
  EXPECT_EQ(why_single_batch(answer.reason), "attention too small to cover combine");
}

}  // namespace
}  // namespace hocket
