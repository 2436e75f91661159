// All that a gate knows, as a copy, for /speculation, metrics and logs.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "policy/speculation/drafter.h"

namespace hocket {

// A number of drafts for a step, and what is expected of it.
struct GateChoice {
  int num_drafts = 0;     // sum over all answers, of all ranks
  double tokens = 1;      // tokens that an answer gets from the step, in the mean
  double time_ratio = 1;  // the step's time, as a multiple of the time without drafts
  int num_measured = 0;   // steps with about that number of drafts that count
};

// Sums since the start. Drafts themselves are counted where they are accepted
// (policy/scheduler/draft_figures.h).
struct GateTotals {
  uint64_t num_steps = 0, num_draft_steps = 0, num_trial_steps = 0;
  double gained_us = 0;  // time that drafts have saved; negative: that they cost
  double trial_us = 0;   // the part of it that trials have saved or cost
};

struct GateState {
  // Steps of about one size: the most answers of all ranks, and the most keys of each.
  struct Bucket {
    int num_answers = 0;
    int64_t answer_keys = 0;
    uint64_t num_steps = 0, num_draft_steps = 0, num_trial_steps = 0;
    GateChoice usual, best;  // the last choice; the best one with drafts
    double plain_us = 0;     // time of its last step, had it had no drafts; 0: unknown
  };
  GateTotals totals;
  bool is_fixed = false;        // a flag sets the number, and the gate does not choose
  bool knows_gain = false;      // false: no step without drafts was seen, to compare others with
  std::vector<Bucket> buckets;  // ascending
  // Share of drafts that were accepted among those whose drafts before it were accepted, over the
  // last requests, by kind of draft and position; and how many count.
  std::array<std::array<double, kMaxDrafts>, kDraftKinds> acceptance{}, num_seen{};
};

}  // namespace hocket
