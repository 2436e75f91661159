// All that the planner knows of one bucket: what it found, what it measured, what it plays.
// Thread: engine.
#pragma once

#include <array>
#include <span>
#include <string>

#include "compute/overlap/medians.h"
#include "compute/overlap/planner.h"

namespace hocket {

// A plan that was played in a bucket, and its measured time as a multiple of the predicted one.
struct PlayedPlan {
  Plan plan;
  MeasuredRatio ratio;
  uint64_t last_used = 0;
};

struct PlannerRecord {
  Bucket border;              // the upper border, which identifies the bucket
  double rows = 0, keys = 0;  // average rows and keys of its steps
  Plan plan;                  // the plan of all steps except shadow runs and trials
  bool is_searched = false;

  // The result of the last search, as predicted, without corrections by measurements.
  struct Found {
    std::array<Candidate, 3> best{};  // indexed by PlanKind; step_us 0: no such plan
    // The plans that may prove to be the best: the best of each kind, and common ones.
    static constexpr size_t kMostFinalists = 12;
    std::array<Candidate, kMostFinalists> finalists{};
    size_t num_finalists = 0;
    double plan_us = 0;  // predicted time of the played plan
    double lower_bound_us = 0, three_halves_us = 0;
    SearchReason reason;
  } found;

  static constexpr size_t kMostPlayed = 16;
  std::array<PlayedPlan, kMostPlayed> played{};  // a place is free if its ratio has count 0
  std::array<MeasuredRatio, 3> ratios;           // measured to predicted, by PlanKind
  RunningMedian<15> measured;          // step times of the played plan since it was adopted [us]
  int streak = 0;                      // score of the searches in a row that another plan won
  int patience_shift = 0;              // the patience is kPatience << patience_shift
  int searched_ago = 0, interval = 1;  // steps since the last search, steps between searches
  int calm = 0;                        // steps since the plan or the patience changed
  int num_trial_steps = 0;             // trial steps since the links changed last
  int trials_at_change = 0;            // num_trial_steps when the plan was changed last
  uint64_t num_steps = 0, num_shadow_steps = 0, num_changes = 0, last_used = 0;
  bool is_told = false;  // the first decision, or the cost of a forced plan, was logged

  std::span<const Candidate> finalists() const {
    return std::span(found.finalists).first(found.num_finalists);
  }
  // Returns null if the plan was not played lately.
  const MeasuredRatio* ratio_of(const Plan& of) const;
  // Returns the plan's ratio and makes it where there is none. Of kMostPlayed, the one that was
  // used longest ago is replaced.
  MeasuredRatio& ratio_for(const Plan& of);
};

// Returns a name for logs: "decode, 64 rows", "prefill, 2048 rows of 4096 keys".
std::string bucket_name(const Bucket& bucket);
// Returns the upper border of the bucket that a step of this size belongs to.
Bucket border_of(const Bucket& bucket);
// The expected times [us] that decision_text() and forced_text() explain a decision by.
struct RecordTimes {
  std::array<double, 3> expected_us{};  // indexed by PlanKind; 0: no such plan
  double plan_us = 0;
};
// Returns the decision with its reason: "decode, 64 rows: none (two halves predicted -4 %: ...)".
std::string decision_text(const PlannerRecord& record, const RecordTimes& times,
                          const OrderTable& orders);
// Returns the cost of a forced plan: "--enable-two-batch-overlap costs 4 % at decode, 64 rows:
// experts too small to cover dispatch".
std::string forced_text(const PlannerRecord& record, const RecordTimes& times,
                        const OrderTable& orders, const OverlapChoice& choice);

}  // namespace hocket
