// Every constant of the planner, of the times that it learns, and of the ledger's estimates. A
// share is a fraction of 1. docs/contracts/overlap.md, "Planner", has the rules that use them.
#pragma once

#include <array>
#include <cstddef>

#include "compute/overlap/stage_times.h"

namespace hocket {

struct PlannerTuning {
  // Each order is a candidate in each of these grains.
  std::array<Grain, 10> grains = {
      {{1, 1}, {2, 1}, {4, 1}, {8, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 2}, {2, 4}, {4, 2}}};

  // Memory.
  int max_buckets = 64;      // buckets with a plan of their own
  int max_cells = 128;       // sizes of halves whose times are known, of both phases
  int median_steps = 15;     // steps in each median of times
  int ratios = 31;           // steps in each median of measured / predicted
  int ratios_of_plans = 16;  // plans of a bucket that were measured and are remembered
  int ageing = 512;          // steps after which half of each count of ratios is forgotten

  // Learning times.
  int few_keys = 1024;  // keys a row; steps with fewer share one bucket
  // Squared octaves that are added to the distance of two sizes, so that none is 0.
  double min_distance = 0.05;
  // Cost of a part or wave until one was measured, of its operations' time.
  double part_share = 0.01;
  double seen_share = 0.5;       // a rank that waited for this share of a transfer saw it arrive
  double newest_share = 0.1;     // weight of the newest step in a running mean, at least
  double spread_per_mean = 1.5;  // standard deviation of noise / its mean absolute deviation

  // Rules by which a number is believed.
  int min_measured = 3;        // measurements from which a plan, a kind or a size counts as known
  int guess_weight = 2;        // measurements that a guess counts as, next to measured ones
  double far_ratio = 1.25;     // a ratio this much off the median is no noise
  int slower = 8, faster = 3;  // steps in a row that are a change; a stall too makes steps slower
  double far_link = 1.4;       // a transfer this much off what is known is no noise
  int link_changes = 3;        // transfers in a row that are a change of the link
  int links_apart = 256;       // steps in which another change of the link is noise

  // Searching.
  double search_share = 0.003;    // share of the time that steps take
  double first_credit_us = 5000;  // time for searches before the first step
  double max_credit_us = 500;     // time saved for later, so that no step is delayed
  int max_between = 64;           // steps between two searches of a bucket

  // Changing the plan of a bucket.
  double same_kind = 0.01, other_kind = 0.02;  // gain that is needed, as a share of the time
  double margin_in_errors = 1.3;               // standard errors that are needed on top
  int evidence_needed = 12;     // steps in a row in which another plan must be better
  double logged_cost = 0.03;    // share of the time from which the cost of a forced plan is logged
  int steps_until_logged = 16;  // steps of a bucket until its first decision is logged

  // Trials; their pace is in base/trial_pace.h.
  int first_trial_steps = 128;  // in a new bucket, and after a change of the link
  // Share by which a kind that was not measured may be off its prediction.
  double doubt_of_unmeasured_kind = 0.4;
  double errors_in_doubt = 1.5, max_doubt = 0.12;  // a plan: times the error seen so far, at most
  double min_trial_doubt = 0.005;                  // predictions with less doubt are not tried

  // Reasons for people.
  double little_exchange = 0.02;   // share of a step below which transfers are not worth hiding
  double main_cause = 0.5;         // share of the transfers from which a cause is named
  size_t max_top_candidates = 12;  // plans that /overlap lists for a bucket
};
inline constexpr PlannerTuning kTuning;

// The ledger's estimate of arrivals: a line through the times of messages.
struct LedgerTuning {
  int points = 16;           // steps whose mean message makes a point of the line
  int latency_steps = 64;    // steps after which the least latency of a link is measured anew
  double slope_apart = 1.5;  // ratio of the bytes of two points from which their slope counts
  int few_slopes = 3;        // slopes from which a line is more than a ratio
};
inline constexpr LedgerTuning kLedgerTuning;

}  // namespace hocket
