// Predicts the plans that a step may be played by, and finds the best. A candidate is an order of
// the table in a number of parts and waves; if it has two halves, at the share at which it is
// predicted to be fastest. With the built-in orders these are at most 90. Pure.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "compute/overlap/plan.h"
#include "compute/overlap/prediction.h"
#include "compute/overlap/tuning.h"

namespace hocket {

struct SearchInput {
  const StageModel& model;
  const OrderTable& orders;
  LayerCounts layers;
  Bucket bucket;
  int row_tile = 1;  // the cut is moved to a multiple of this number of rows
};

struct Candidate {
  Plan plan;
  PlanKind kind = PlanKind::none;
  double step_us = 0;
};

// The times of `none` and of the best plan of two halves, for explanations.
struct SearchReason {
  Prediction none, two;
  double latency_us = 0;               // latency of all transfers of a step without overlap
  double experts_us = 0, attn_us = 0;  // the mean layer of the second half of `two`
};

struct SearchResult {
  std::vector<Candidate> candidates;               // all of them; empty: nothing was searched
  std::array<Candidate, kNumPlanKinds> best_of{};  // by PlanKind; step_us 0: there is none
  double lower_bound_us = 0;  // no order, with a share and parts that were searched, is faster
  SearchReason reason;

  const Candidate& best() const;
};

// Allocates nothing if `used`, an earlier answer whose memory it takes, has room for
// max_candidates().
SearchResult search(const SearchInput& input, SearchResult used = {});

inline size_t max_candidates(const OrderTable& orders) {
  return static_cast<size_t>(orders.size()) * kTuning.grains.size();
}
// Returns the halves that the bucket is cut into by `share`; nothing if it cannot be cut in two.
std::optional<std::array<Bucket, 2>> halves_of(const Bucket& bucket, int share, int row_tile);
// Predicts the plan for input.bucket.
Prediction predict_plan(const SearchInput& input, const Plan& plan);

}  // namespace hocket
