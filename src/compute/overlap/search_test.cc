// Compares the search with all plans one by one.
#include "compute/overlap/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

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

constexpr LayerCounts kLayers{.num_dense = 1, .num_moe = 16, .has_shared = true, .beside_us = 50};

void keep_better(Candidate& best, const Candidate& other) {
  if (best.step_us == 0 || other.step_us < best.step_us) best = other;
}

// Predicts every plan, one after the other.
SearchAnswer look_at_all(const SearchQuestion& question) {
  SearchAnswer all;
  for (int parts = 1; parts <= question.most_parts; parts *= 2)
    for (const int share : kSearchShares) {
      const auto halves = halves_of(question.bucket, share, question.row_tile);
      const std::array times = {question.model.at((*halves)[0]), question.model.at((*halves)[1])};
      const StageTimes whole = question.model.at(question.bucket);
      const Predictor one({&whole, 1}, parts, question.layers);
      const Predictor two(times, parts, question.layers);
      for (int order = 0; order < question.orders.size(); ++order) {
        const Plan plan{order, parts, share};
        const PlanKind kind = kind_of(plan, question.orders);
        const Predictor& predictor = kind == PlanKind::two_batch ? two : one;
        const Candidate candidate{plan, predictor.step_us(question.orders.at(order))};
        keep_better(kind == PlanKind::none           ? all.none
                    : kind == PlanKind::single_batch ? all.best_single
                                                     : all.best_two,
                    candidate);
        keep_better(all.best, candidate);
        if (kind == PlanKind::two_batch && share == kEvenShare &&
            order < question.orders.found_begin())
          all.common.push_back(candidate);
      }
    }
  return all;
}

// Plans that the search leaves out (pruning, cycles, limits) are never the best.
TEST(Search, FindsWhatLookingAtAllFinds) {
  std::mt19937 random(11);
  LayerCounts layers = kLayers;
  layers.num_moe = 10;
  const OrderTable& table = OrderTable::builtin();
  for (int round = 0; round < 1000; ++round) {
    const testing::StageDraw draw{.latency_us = static_cast<double>(random() % 4 * 30)};
    const int rows = static_cast<int>(2 + random() % 200);
    const ScaledTimes model(draw(random), rows, random() % 3 * 0.3);
    const SearchQuestion question{.model = model,
                                  .orders = table,
                                  .layers = layers,
                                  .bucket = {Phase::decode, rows, 1000},
                                  .row_tile = round % 2 == 0 ? 1 : 16,
                                  .most_parts = round % 16 == 0 ? 4 : 1};
    const SearchAnswer found = search(question);
    const SearchAnswer all = look_at_all(question);
    ASSERT_EQ(found.none.step_us, all.none.step_us) << round;
    ASSERT_EQ(found.best_single.step_us, all.best_single.step_us) << round;
    ASSERT_EQ(found.best_two.step_us, all.best_two.step_us) << round;
    ASSERT_EQ(found.best.step_us, all.best.step_us) << round;
    ASSERT_TRUE(std::ranges::all_of(all.common, [&](const Candidate& c) {
      const auto it = std::ranges::find(found.common, c.plan, &Candidate::plan);
      return it != found.common.end() && it->step_us == c.step_us;
    })) << round;
    ASSERT_EQ(predict_plan(question, found.best.plan).step_us, found.best.step_us) << round;
    ASSERT_LE(found.lower_bound_us, found.best.step_us) << round;
  }
}

TEST(Search, WhatIsForbiddenIsNotChosenButKnown) {
  std::mt19937 random(12);
  const ScaledTimes model(testing::StageDraw{}(random), 64, 0);
  SearchQuestion question{.model = model,
                          .orders = OrderTable::builtin(),
                          .layers = kLayers,
                          .bucket = {Phase::decode, 64, 0}};
  const SearchAnswer free = search(question);
  EXPECT_EQ(kind_of(free.best.plan, question.orders), PlanKind::two_batch);
  question.two_batch = false;
  const SearchAnswer single = search(question);
  EXPECT_EQ(kind_of(single.best.plan, question.orders), PlanKind::single_batch);
  question.single_batch = false;
  const SearchAnswer none = search(question);
  EXPECT_EQ(none.best.plan, Plan{});
  for (const SearchAnswer* answer : {&single, &none}) {
    EXPECT_EQ(answer->best_two.step_us, free.best_two.step_us);
    EXPECT_EQ(answer->best_single.step_us, free.best_single.step_us);
  }
}

TEST(Search, LeadersRiseAndAreOfDifferentOrders) {
  std::mt19937 random(13);
  const ScaledTimes model(testing::StageDraw{}(random), 64, 0);
  const SearchAnswer answer = search({.model = model,
                                      .orders = OrderTable::builtin(),
                                      .layers = kLayers,
                                      .bucket = {Phase::decode, 64, 0}});
  ASSERT_EQ(answer.leaders.size(), static_cast<size_t>(SearchAnswer::kLeaders));
  EXPECT_EQ(answer.leaders.front().plan, answer.best.plan);
  for (size_t i = 1; i < answer.leaders.size(); ++i) {
    EXPECT_LE(answer.leaders[i - 1].step_us, answer.leaders[i].step_us);
    for (size_t k = 0; k < i; ++k)
      EXPECT_NE(answer.leaders[k].plan.order, answer.leaders[i].plan.order);
  }
}

// A search in pieces gives the same answer as one at once.
TEST(Searcher, PiecesGiveTheSameAnswer) {
  std::mt19937 random(14);
  const ScaledTimes model(testing::StageDraw{}(random), 64, 0.3);
  const SearchQuestion question{.model = model,
                                .orders = OrderTable::builtin(),
                                .layers = kLayers,
                                .bucket = {Phase::decode, 64, 0}};
  const SearchAnswer whole = search(question);
  Searcher searcher(question.orders);
  for (int round = 0; round < 2; ++round) {
    searcher.begin(question);
    int pieces = 1;
    while (!searcher.advance(7)) ++pieces;
    EXPECT_GT(pieces, 10);
    EXPECT_EQ(searcher.answer().best.plan, whole.best.plan);
    EXPECT_EQ(searcher.answer().best.step_us, whole.best.step_us);
    EXPECT_EQ(explain(searcher.answer(), question.orders), whole.why);
  }
}

// The input of a search whose explanation is tested. In each case one cause alone decides.
struct Said {
  StageTimes whole;
  double floor = 0;
  int rows = 64;
};

std::string said(const Said& given) {
  const ScaledTimes model(given.whole, 64, given.floor);
  return search({.model = model,
                 .orders = OrderTable::builtin(),
                 .layers = kLayers,
                 .bucket = {Phase::decode, given.rows, 0},
                 .single_batch = false,
                 .most_parts = 1})
      .why;
}

StageTimes times(double attn, double experts, TransferTime dispatch, TransferTime combine) {
  StageTimes made;
  made.of(Op::attn_core) = attn;
  made.of(Op::experts) = experts;
  made.dispatch = dispatch, made.combine = combine;
  return made;
}

TEST(Search, SaysWhy) {
  EXPECT_EQ(said({times(100, 100, {0.5, 0.1}, {0.5, 0.1}), 0.5}),
            "two halves predicted -48 %: nothing to hide, the exchange is 0.6 % of the step");
  EXPECT_EQ(said({times(100, 100, {20, 0}, {20, 0}), 0.4}),
            "two halves predicted -17 %: splitting costs 33 %, hides 16 %");
  EXPECT_EQ(said({times(20, 20, {1, 150}, {1, 150}), 0.98}),
            "two halves predicted 0 %: 99 % of the exchange is latency");
  EXPECT_EQ(said({times(100, 100, {50, 0}, {50, 0}), 0, 1}), "too few rows for two halves");
  EXPECT_EQ(said({times(100, 100, {50, 0}, {50, 0}), 0}),
            "the exchange is 32 % of a step without overlap, 99 % of it hidden");
}

TEST(Search, SaysWhatIsTooSmall) {
  SearchAnswer answer;
  answer.reason = {.none = {.step_us = 100, .exposed_us = 40, .compute_us = 60},
                   .two = {.step_us = 104,
                           .exposed_us = 30,
                           .dispatch_exposed_us = 20,
                           .combine_exposed_us = 10,
                           .compute_us = 74},
                   .experts_us = 5,
                   .attn_us = 20};
  EXPECT_EQ(why_not_two(answer.reason), "experts too small to cover dispatch");
  std::swap(answer.reason.experts_us, answer.reason.attn_us);
  EXPECT_EQ(why_not_two(answer.reason), "attention too small to cover dispatch");
  answer.reason.two.combine_exposed_us = 25;
  EXPECT_EQ(why_not_two(answer.reason), "attention too small to cover combine");
}

}  // namespace
}  // namespace hocket
