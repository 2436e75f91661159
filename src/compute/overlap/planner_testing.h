// The fixture of tests that let a made-up server play what the planner chooses. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "base/clock_testing.h"
#include "compute/overlap/served_testing.h"

namespace hocket::testing {

class PlannerTest : public ::testing::Test {
 protected:
  Planner::Options options(
      std::shared_ptr<const StageModel> prior = std::make_shared<UninformedPrior>()) {
    return {.orders = &OrderTable::builtin(),
            .layers = kServedLayers,
            .prior = std::move(prior),
            .clock = &clock_};
  }
  static Bucket decode(int rows) { return {Phase::decode, rows, rows * 500}; }
  static std::shared_ptr<StageMachine> prior_like(const StageMachine& machine) {
    auto prior = std::make_shared<StageMachine>(machine);
    prior->level = 2;  // its level is wrong, and it expects another link
    prior->link_gbit *= 3;
    return prior;
  }
  // Returns how much slower the chosen plan is than the best one, as a fraction.
  static double regret(Server& server, const Bucket& bucket) {
    const double best_us = search(server.truth(bucket)).best().step_us;
    return server.true_us(bucket, server.plan_now(bucket)) / best_us - 1;
  }

  // The same among plans of two halves.
  static double regret_of_two_batch(Server& server, const Bucket& bucket) {
    const SearchResult found = search(server.truth(bucket));
    const double best_us = found.best_of[index_of(PlanKind::two_batch)].step_us;
    return server.true_us(bucket, server.plan_now(bucket)) / best_us - 1;
  }

  FakeClock clock_;
};

}  // namespace hocket::testing
