// The constants of the gate. docs/speculation.md explains the rules in which they stand; trials
// keep the pace of base/trial_pace.h.
#pragma once

#include <cstdint>

namespace hocket {

struct GateTuning {
  // Memory.
  int most_buckets = 64;  // sizes of steps with costs of their own
  int remembered = 15;    // steps in each median of times
  int ageing = 512;       // steps of a size after which half of its measurements is forgotten
  int few_keys = 1024;    // keys an answer; steps with fewer are of one size
  // Steps after which the time without drafts is measured again, at first and later.
  uint64_t first_plain_age = 50, plain_age = 1000;
  double most_off = 2;  // times the median that a step without drafts counts as, at most
  // A step of r times the rows counts as r times this many steps at most. So many drafts, even if
  // all held, would not gain; what took longer, the machine held up.
  double most_off_a_row = 1.25;

  // When a number is believed.
  int few = 3;                    // measurements from which a cost counts as known
  int guess = 2;                  // measurements that a guess counts as, beside measured ones
  double growth = 0.7;            // a step of r times the rows takes r^growth, until measured
  double doubt_unmeasured = 0.4,  // how far a cost may be off its guess if none is known near it
      doubt_near = 0.12;          // and if one is
  double certain = 0.005;         // costs with less doubt are not tried

  // Choosing. Gains are shares of the time of a step without drafts.
  double begin_gain = 0.015, keep_gain = 0.005;  // gain that is needed to begin, and to go on
  double errors = 1;                             // standard errors that are needed on top, to begin
  double value_rate = 1.0 / 32;                  // weight of a step in the value of time

  // Trials. Credit is in steps without drafts: what trials may lose.
  int first_trials = 64;     // steps of trials at each size that need not be rare
  double large_gain = 0.05;  // trials that hope for more need not be rare either
  int steps_left = 2;     // steps in which drafts made now or ahead leave a trial to the others
  double first_credit = 5, credit_share = 0.003;
  double least_credit = -1;      // one step that the machine held up must not end all trials
  // Share of the credit that one trial is expected to lose, at most; more if it hopes for more.
  double credit_in_trial = 0.3, credit_in_hopeful_trial = 0.45;
  double credit_in_trial_ahead = 0.1;  // the same if following requests takes credit as well
  double credit_to_follow = 4;         // credit from which a drafter that rested follows again
  // Following prompts: steps of answers over which its cost is spread at first, and what counts of
  // older ones, each step.
  double prompts_steps = 100, prompts_decay = 0.998;

  // Acceptance.
  double request_decay = 0.98, group_decay = 0.996;  // weight of what was known, each time
  double group_weight = 20;  // drafts that the group counts as, beside a request's own
  double before_weight = 4;  // drafts that the position before counts as
  double first_weight = 2, first_acceptance = 0.5;  // before any draft was verified
  double errors_hoped = 1.5;  // standard errors by which a trial hopes for more
};
inline constexpr GateTuning kGate;

}  // namespace hocket
