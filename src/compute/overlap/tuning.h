// The constants of the planner and of the times that it learns. docs/contracts/overlap.md,
// "Planner", explains the rules in which they stand.
#pragma once

#include <cstdint>

namespace hocket {

struct PlannerTuning {
  // Memory.
  int most_buckets = 64;     // buckets with a plan of their own
  int most_cells = 64;       // sizes of halves whose times are known, for each phase
  int remembered = 15;       // steps in each median of times
  int ratios = 31;           // steps in each median of measured / predicted
  int ratios_of_plans = 16;  // plans of a bucket that were measured and are remembered
  int ageing = 512;          // steps after which half of each count of ratios is forgotten

  int few_keys = 1024;       // keys a row; steps with fewer share one bucket
  double part_share = 0.01;  // cost of a part until one was measured, of the time of its operations

  // When a number is believed.
  int few = 3;                 // measurements from which a plan, a kind or a size counts as known
  int guess = 2;               // measurements that a guess counts as, beside measured ones
  double far_ratio = 1.25;     // a ratio this much off the median is no noise
  int slower = 8, faster = 3;  // so many in a row are a change; a stall too makes steps slower
  double far_link = 1.4;       // a transfer this much off what is known is no noise
  int link_changes = 3;        // so many in a row are a change of the link
  int links_apart = 256;       // steps in which another change of the link is noise

  // Searching.
  double search_share = 0.003;    // a share of the time that steps take
  double first_credit_us = 5000;  // before the first step
  double most_credit_us = 500;    // saved for later, so that no step is held up
  int most_between = 64;          // steps between two searches of a bucket

  // Changing the plan of a bucket.
  double same_kind = 0.01, other_kind = 0.03;  // gain that is needed, as a share of the time
  double errors = 1.3;                         // standard errors that are needed on top
  int patience = 12;        // steps in a row in which another plan must be better
  double cost_told = 0.03;  // share of the time from which the cost of a forced plan is logged
  int untold = 16;          // steps of a bucket until its first decision is logged

  // Trials; their pace is in base/trial_pace.h.
  int first_trials = 128;      // steps of trials in a new bucket, and after a change of the link
  double doubt_of_kind = 0.4;  // how far a kind that was not measured may be off its prediction
  double errors_in_doubt = 1.5, most_doubt = 0.12;  // a plan: times the error seen so far, at most
  double certain = 0.005;                           // predictions with less doubt are not tried
};
inline constexpr PlannerTuning kTuning;

}  // namespace hocket
