// What the planner knows of one bucket: what was found, what was measured, what is played.
// Thread: engine.
#pragma once

#include <array>
#include <string>

#include "compute/overlap/medians.h"
#include "compute/overlap/planner.h"

namespace hocket {

struct PlannerRecord {
  Bucket border;              // its upper one; which bucket this is
  double rows = 0, keys = 0;  // what steps in it had, on average
  Plan plan;                  // what is played, but for shadow runs
  bool is_searched = false;

  // Of the last search, as predicted, without what was measured.
  struct Found {
    std::array<Candidate, 3> best{};  // by PlanKind; step_us 0: there is none
    double plan_us = 0;               // of what is played
    double lower_bound_us = 0, three_halves_us = 0;
    SearchReason reason;
  } found;

  std::array<MeasuredRatio, 3> ratios;  // measured to predicted, by PlanKind
  RunningMedian<15> measured;           // of what is played, since it is
  int streak = 0;                       // searches on end that another plan was better in
  int patience_shift = 0;               // each change asks for twice the patience
  int searched_ago = 0, interval = 1;   // steps
  int calm = 0;                         // steps since the plan or the patience changed
  uint64_t num_steps = 0, num_shadow_steps = 0, num_changes = 0, last_used = 0;
  bool is_told = false;  // the first decision, or what a forced plan costs
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
