// The constants of the gate. docs/speculation.md explains the rules that use them; trials keep the
// pace of base/trial_pace.h.
#pragma once

#include <cstdint>

namespace hocket {

struct GateTuning {
  // Memory.
  int max_buckets = 64;  // sizes of steps with costs of their own
  int remembered = 15;   // steps without drafts whose median limits what one may count
  int few_keys = 1024;   // keys an answer; steps with fewer are of one size
  // While drafts are played, the time without them is measured again so rarely that this costs
  // plain_share of the time, after min_plain_age to max_plain_age steps; at first more often.
  double plain_share = 0.003;
  double min_plain_age = 32, max_plain_age = 1000;
  double first_rest_age = 50;  // the same for a drafter that only follows, at first
  double max_off = 2;          // times the median that a step without drafts counts as, at most

  // Costs, as logarithms (draft_costs.h). Before it is measured a step of r times the rows takes
  // r^growth. Costs may be off by growth_error times the log of r, by a bend of this deviation over
  // a log of 1, and each by itself.
  double growth = 0.7, growth_error = 0.25, bend = 0.25, apart = 0.03;
  int few = 3;                   // measurements from which a time counts as known
  int few_plain = 8;             // steps without drafts before the first with drafts
  double first_speed_error = 1;  // before any step
  double speed_change = 0.02;    // variance that a step adds to the speed, in those of its noise
  double cost_change = 0.003;    // deviation that a step adds to each cost
  double first_noise = 0.05, min_noise = 0.005;      // deviation of single steps
  double noise_rate = 1.0 / 32;                      // weight of a step in the noise
  double max_errors = 2.5;                           // standard errors of a step that is far off
  double bias_rate = 1.0 / 3, bias_of_change = 1.6;  // mean of such errors that means another speed
  double min_trial_gain = 0.02;                      // numbers that may gain less are not tried

  // Choosing. Gains are shares of the time of a step without drafts.
  double begin_gain = 0.02, keep_gain = 0.005;  // gain that is needed to begin, and to continue
  double errors = 1;                            // standard errors that a change needs on top
  double value_rate = 1.0 / 32;                 // weight of a step in the value of time

  // Trials. Credit is in steps without drafts: what trials may lose.
  int first_trials = 64;     // steps of trials at each size that need not be rare
  double large_gain = 0.05;  // trials with an expected gain above this may be frequent
  int yield_steps = 2;       // steps in which drafts made now or ahead leave a trial to the others
  double first_credit = 5, credit_share = 0.003;
  double min_credit = -1;  // one step delayed by other programs must not end all trials
  // Share of the credit that one trial is expected to lose, at most, and the steps of it that are
  // played if the first ones show that it loses.
  double credit_in_trial = 0.35;
  double steps_if_lost = 3;
  // Added to the expected loss of a step when expected gains are divided by it.
  double min_loss = 0.1;
  double credit_in_trial_ahead = 0.1;  // the same if following requests takes credit as well
  double credit_to_follow = 4;         // credit from which a drafter that stopped follows again
  // Following prompts: steps of answers over which its cost is spread at first, and what counts of
  // older ones, each step.
  double prompts_steps = 100, prompts_decay = 0.998;

  // Overlapped steps (draft_overlap.h): looks before drafts may begin; and steps from look to look,
  // such that looks take this share of the time.
  int few_looks = 5;
  double look_share = 0.003;
  int min_look_steps = 8, max_look_steps = 64;

  // Acceptance.
  double request_decay = 0.98, group_decay = 0.996;  // weight of what was known, each time
  // The weights of the last drafts fall by recent_decay, and min_recent of them have to count. They
  // show a change if their share is change_errors standard errors off.
  double recent_decay = 0.9, min_recent = 5, change_errors = 3.5;
  double group_weight = 20;  // drafts that the group counts as, beside a request's own
  double before_weight = 4;  // drafts that the position before counts as
  double first_weight = 2, first_acceptance = 0.5;  // before any draft was verified
  // Standard errors, of acceptance and of costs, added to the expected gain of a trial.
  double trial_errors = 1.5;
};
inline constexpr GateTuning kGate;

}  // namespace hocket
