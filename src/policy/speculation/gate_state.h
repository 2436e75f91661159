// All that a gate knows, as a copy, for /speculation, metrics and logs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "policy/speculation/drafter.h"

namespace hocket {

// A number of drafts for a step, and what is expected of it.
struct GateChoice {
  int num_drafts = 0;    // sum over all answers
  double tokens = 1;     // tokens that an answer gets from the step
  double times = 1;      // the step's time, as a multiple of the time without drafts
  int num_measured = 0;  // steps with about so many drafts that count
};

// Sums since the start. An answer counts as verified in each step in which it has drafts.
struct GateTotals {
  uint64_t num_steps = 0, num_draft_steps = 0, num_trial_steps = 0;
  uint64_t num_verified = 0, num_drafts = 0, num_held = 0;
  double gained_us = 0;  // time that drafts have saved; negative: that they cost
  double trial_us = 0;   // the part of it that trials have saved or cost

  // SGLang's accept length: tokens that a verified answer gets from a step, and its accept rate:
  // the share of drafts that held. 0 before the first draft.
  double accept_length() const {
    return num_verified > 0 ? 1 + static_cast<double>(num_held) / static_cast<double>(num_verified)
                            : 0;
  }
  double accept_rate() const {
    return num_drafts > 0 ? static_cast<double>(num_held) / static_cast<double>(num_drafts) : 0;
  }
};

struct GateState {
  // Steps of about one size: at most so many answers with at most so many keys each.
  struct Size {
    int num_answers = 0;
    int64_t keys = 0;
    uint64_t num_steps = 0, num_draft_steps = 0, num_trial_steps = 0;
    GateChoice usual, best;  // the last choice; the best one with drafts
    double plain_us = 0;     // time of its last step, had it had no drafts; 0: unknown
    std::string text;        // the choice and its reason
  };
  GateTotals totals;
  bool is_fixed = false;    // the number is set, and no gate chooses it
  std::vector<Size> sizes;  // ascending
  // Share of drafts that held among those whose drafts before it held, over the last requests, by
  // kind of draft and position; and how many count.
  std::array<std::array<double, kMostDrafts>, kDraftKinds> acceptance{}, num_seen{};
};

}  // namespace hocket
