// Says why a plan is played, for logs, /overlap and forecasts. Pure.
#pragma once

#include <string>
#include <vector>

#include "compute/overlap/plan_record.h"

namespace hocket {

// A plan that may prove to be the best of a bucket.
struct TopCandidate {
  Plan plan;
  std::string name;                          // describe()
  double predicted_us = 0, expected_us = 0;  // expected: corrected by what was measured
  int num_measured = 0;                      // how many of its last steps count, at most 31
};

// The decision for one bucket, as /overlap and log lines show it.
struct OverlapDecision {
  Bucket bucket;  // the upper border of the bucket
  Plan plan;
  std::string name;  // describe() of the plan
  // The kTuning.max_top_candidates plans that are expected to be fastest, sorted.
  std::vector<TopCandidate> top_candidates;
  std::string text;  // "decode, 64 rows: none (two halves predicted -4 %: ...)"
  double predicted_us = 0, measured_us = 0, none_us = 0, lower_bound_us = 0;
  uint64_t num_steps = 0, num_trial_steps = 0, num_changes = 0;
};
struct PlannerState {
  std::vector<OverlapDecision> decisions;  // prefill first, rows ascending
  uint64_t num_steps = 0, num_trial_steps = 0, num_searches = 0;
  double search_seconds = 0;
};
OverlapDecision decision_of(const PlanRecord& record, const OrderTable& orders);

// Returns the decision with its reason: "decode, 64 rows: none (two halves predicted -4 %: ...)".
std::string decision_text(const PlanRecord& record, const OrderTable& orders);
// Returns the cost of a plan that `flag` forces: "--enable-two-batch-overlap costs 4 % at decode,
// 64 rows: experts too small to cover dispatch".
std::string forced_text(const PlanRecord& record, const OverlapChoice& choice,
                        const OrderTable& orders);
// Returns why two halves do not gain more: "experts too small to cover dispatch".
std::string why_single_batch(const SearchReason& reason);
// Says why the best plan is the best: "two halves predicted -4 %: experts too small to cover
// dispatch". Percents are gains as a fraction of the time of `none`.
std::string explain(const SearchResult& answer);

}  // namespace hocket
