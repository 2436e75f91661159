// The constants of the gate that were tuned. docs/speculation.md explains the rules that use them;
// trials keep the pace of base/trial_pace.h. Units: a gain, a loss or a cost is a share of the time
// of a step without drafts, unless its comment says otherwise; weights count drafts or steps.
#pragma once

#include <cstdint>

namespace hocket {

struct GateTuning {
  // Share of all steps' time that measuring may lose, for each of three kinds: steps without drafts
  // while drafts are played, trials (their credit grows by it with each step), and looks in
  // overlapped steps.
  double measuring_share = 0.003;
  double mean_rate = 1.0 / 32;  // weight of a step in running means: of noise, of tokens and time
  int few = 3;                  // measurements from which a time counts as known

  // Sizes of steps (gate_buckets.h).
  int max_buckets = 64;  // sizes that have measured costs
  int few_keys = 1024;   // keys an answer; steps with fewer are of one size

  // Steps without drafts, to which others are compared.
  int remembered = 15;  // steps whose times make a median
  double max_off = 2;   // a slower step counts as if it took this many times the median
  int few_plain = 8;    // steps before the first one with drafts
  // Steps after which the time without drafts is measured again, at least and at most.
  // first_rest_age: at least, while no drafts are played and the drafter only follows requests.
  double min_plain_age = 32, max_plain_age = 1000, first_rest_age = 50;

  // Costs of drafts, as logarithms of time ratios (draft_costs.h). Before it is measured, a step of
  // r times the rows takes r^growth. That is uncertain in three ways: the exponent has the standard
  // error growth_error; the curve may bend, as a random walk over log r with growth_error for each
  // unit; and the cost of each number of drafts deviates by itself, by own_cost_error.
  double growth = 0.7, growth_error = 0.25, own_cost_error = 0.03;
  double first_speed_error = 1;  // standard error of the speed before any step
  // Variance that a step adds to the speed, as a multiple of the variance of its noise.
  double speed_change = 0.02;
  double cost_change = 0.003;                    // standard error that a step adds to each cost
  double first_noise = 0.05, min_noise = 0.005;  // standard deviations of single steps
  double max_errors = 2.5;          // standard errors; a step further off counts as this
  double bias_rate = 1.0 / 2;       // weight of a step in the mean of these errors
  double bias_of_change = 2.1;      // standard errors; a larger mean: the speed or a cost changed
  double own_bias_of_change = 2.3;  // the same of the steps with one number: its cost changed
  double max_bias = 3;  // standard errors; a step further off counts as this in both means
  // A change that was detected adds the last step's deviation to the standard error of the speed or
  // of a cost (their squares are added); a larger deviation counts as this. Logarithm.
  double max_change_error = 0.5;
  uint64_t change_back_steps = 8;  // steps within which a change back shows costs that are wrong

  // The choice.
  double begin_gain = 0.02;  // gain that is needed to begin, or to be tried
  double keep_gain = 0.005;  // gain that is needed to continue

  // Trials. The credit is the time that they may still lose, in steps without drafts.
  double first_credit = 5;        // at the start, and the most that there may be
  double min_credit = -1;         // least credit: one delayed step cannot stop trials for longer
  double credit_in_trial = 0.35;  // share of the credit that a trial is expected to lose, at most
  double credit_in_trial_ahead = 0.1;  // the same if following requests takes credit as well
  int first_trials = 64;               // steps of trials at each size that need not be rare
  double large_gain = 0.05;            // trials with an expected gain above this may be frequent
  double min_loss = 0.1;  // added to expected losses by which expected gains are divided
  // Standard errors by which a number may be better than it seems, so that it is tried.
  double trial_errors = 1.5;
  // Steps in which the way of drafting that had the last trial lets the other way try first.
  int yield_steps = 2;

  // Weight of a step in the share that other ranks have of the drafts expected of them
  // (common_step.h): if this rank has drafts; and if it has none, towards the expectation that they
  // have all.
  double others_rate = 1.0 / 64, others_recover_rate = 1.0 / 256;

  // Following prompts: steps of answers over which its cost is spread at first, and the weight that
  // older ones keep with each step.
  double prompts_steps = 100, prompts_decay = 0.998;

  // Overlapped steps (draft_overlap.h): looks before drafts may begin, and steps from look to look.
  int few_looks = 5, min_look_steps = 8, max_look_steps = 64;

  // Acceptance (acceptance.h). With each draft the weight of older ones falls by a factor, for the
  // drafts of a request, of all requests (the group), and of the last ones.
  double request_decay = 0.98, group_decay = 0.996, recent_decay = 0.9;
  // The last drafts show a change if min_recent of them count and their share is change_errors
  // standard errors off.
  double min_recent = 5, change_errors = 3.5;
  double group_weight = 20;  // drafts that the group counts as, beside a request's own
  double before_weight = 4;  // drafts that the position before counts as
};
inline constexpr GateTuning kGate;

}  // namespace hocket
