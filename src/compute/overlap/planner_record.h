// What the planner knows of one bucket: what was found, what was measured, what is played.
// Thread: engine.
#pragma once

#include <array>
#include <span>
#include <string>

#include "compute/overlap/medians.h"
#include "compute/overlap/planner.h"

namespace hocket {

// A plan that was played in a bucket, and what it took as a multiple of what was predicted.
struct PlayedPlan {
  Plan plan;
  MeasuredRatio ratio;
  uint64_t last_used = 0;
};

struct PlannerRecord {
  Bucket border;              // its upper one; which bucket this is
  double rows = 0, keys = 0;  // what steps in it had, on average
  Plan plan;                  // what is played, but for shadow runs
  bool is_searched = false;

  // Of the last search, as predicted, without what was measured.
  struct Found {
    std::array<Candidate, 3> best{};  // by PlanKind; step_us 0: there is none
    // Those that may turn out to be the best: of each kind the best, and common ones.
    static constexpr size_t kMostFinalists = 12;
    std::array<Candidate, kMostFinalists> finalists{};
    size_t num_finalists = 0;
    double plan_us = 0;  // of what is played
    double lower_bound_us = 0, three_halves_us = 0;
    SearchReason reason;
  } found;

  static constexpr size_t kMostPlayed = 16;
  std::array<PlayedPlan, kMostPlayed> played{};  // count of the ratio 0: a free place
  std::array<MeasuredRatio, 3> ratios;           // measured to predicted, by PlanKind
  RunningMedian<15> measured;                    // of what is played, since it is
  int streak = 0;                                // searches on end that another plan was better in
  int patience_shift = 0;                        // each change without trials doubles the patience
  int searched_ago = 0, interval = 1;            // steps
  int calm = 0;                                  // steps since the plan or the patience changed
  int num_trial_steps = 0;                       // since the links became what they are
  int trials_at_change = 0;                      // so many when the plan was changed last
  uint64_t num_steps = 0, num_shadow_steps = 0, num_changes = 0, last_used = 0;
  bool is_told = false;  // the first decision, or what a forced plan costs

  std::span<const Candidate> finalists() const {
    return std::span(found.finalists).first(found.num_finalists);
  }
  // Null: it was not played lately.
  const MeasuredRatio* ratio_of(const Plan& of) const;
  // Made where there is none; of too many, that of longest ago goes.
  MeasuredRatio& ratio_for(const Plan& of);
};

// "decode, 64 rows", "prefill, 2048 rows of 4096 keys".
std::string bucket_name(const Bucket& bucket);
// Which bucket a step of this size is in.
Bucket border_of(const Bucket& bucket);
// Why it is so: "decode, 64 rows: none (two halves predicted -4 %: ...)".
struct RecordTimes {
  std::array<double, 3> expected_us{};  // by PlanKind; 0: there is none
  double plan_us = 0;
};
std::string decision_text(const PlannerRecord& record, const RecordTimes& times,
                          const OrderTable& orders);
// "--enable-two-batch-overlap costs 4 % at decode, 64 rows: experts too small to cover dispatch".
std::string forced_text(const PlannerRecord& record, const RecordTimes& times,
                        const OrderTable& orders, const OverlapChoice& choice);

}  // namespace hocket
