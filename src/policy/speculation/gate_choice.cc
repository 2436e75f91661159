// The part of the gate that chooses: the gains of numbers of drafts, and trials.
#include <algorithm>
#include <cmath>
#include <utility>

#include "policy/speculation/speculation_gate.h"

namespace hocket {

// Time is worth the tokens that it usually brings.
double SpeculationGate::worth_of(const Bucket& bucket) {
  return std::max(1.0, bucket.tokens_mean / bucket.time_ratio_mean);
}

SpeculationGate::Estimate SpeculationGate::judge(const Bucket& bucket, DraftTiming timing,
                                                 int num_answers,
                                                 const Candidate& candidate) const {
  const TimingState& way = bucket.way(timing);
  Estimate out{.num_drafts = candidate.num_drafts, .cost = way.costs.of(candidate.num_drafts)};
  const double error = way.costs.error_between(candidate.num_drafts, way.usual.num_drafts);
  const double worth = worth_of(bucket), ratio = out.cost.time_ratio;
  const double best_ratio = std::max(1.0, ratio * std::exp(-kGate.trial_errors * error));
  out.tokens = 1 + held_of_all(candidate.held, candidate.num_drafts) / num_answers;
  const double prompts =
      timing == DraftTiming::ahead ? prompts_cost_ / (prompts_steps_ + kGate.prompts_steps) : 0;
  out.gain = out.tokens - 1 - worth * (ratio - 1 + prompts);
  out.best_case = held_of_all(candidate.best_case, candidate.num_drafts) / num_answers -
                  worth * (best_ratio - 1 + prompts);
  out.worst_case = out.gain - kGate.errors * worth * ratio * error;
  return out;
}

// Returns the number that is surely worth most, none included, and the best of the others.
// other_gain: as in choose().
std::pair<SpeculationGate::Estimate, SpeculationGate::Estimate> SpeculationGate::judge_all(
    const Bucket& bucket, DraftTiming timing, int num_answers, double other_gain) const {
  const bool drafts_now = bucket.way(timing).usual.num_drafts > 0;
  Estimate usual{.gain = other_gain, .worst_case = other_gain}, best;
  for (const Candidate& candidate : drafts_.candidates()) {
    const Estimate judged = judge(bucket, timing, num_answers, candidate);
    if (best.num_drafts == 0 || judged.gain > best.gain) best = judged;
    const double needed =
        std::max(drafts_now ? kGate.keep_gain : kGate.begin_gain, usual.worst_case);
    if (judged.worst_case > needed) usual = judged;
  }
  return {usual, best};
}

// Chooses a number of drafts of all answers together, none included, and notes the choice. It has
// to gain more than other_gain, which can be had otherwise.
SpeculationGate::Estimate SpeculationGate::choose(Bucket& bucket, DraftTiming timing,
                                                  int num_answers, double other_gain) {
  const auto note_choice = [&bucket](const Estimate& chosen) {
    bucket.tokens_mean += kGate.value_rate * (chosen.tokens - bucket.tokens_mean);
    bucket.time_ratio_mean += kGate.value_rate * (chosen.cost.time_ratio - bucket.time_ratio_mean);
  };
  const bool is_other_noted = timing == DraftTiming::ahead && drafts_.has_free();
  // A step in which nothing can be drafted is no choice, but its time counts.
  if (drafts_.candidates().empty()) {
    if (!is_other_noted) note_choice({});
    return {};
  }
  // While others have drafts no step shows the time without, but that of other sizes tells it.
  const bool is_plain_known = num_other_drafts_ > 0 && last_plain_us_ > 0;
  if (bucket.num_plain() < kGate.few_plain && !is_plain_known) return {};
  auto [usual, best] = judge_all(bucket, timing, num_answers, other_gain);
  const auto as_choice = [](const Estimate& judged) {
    return GateChoice{judged.num_drafts, judged.tokens, judged.cost.time_ratio,
                      judged.cost.num_measured};
  };
  const int tried = try_one(bucket, timing, usual, num_answers);
  TimingState& way = bucket.way(timing);
  way.usual = as_choice(usual), way.best = as_choice(best);
  if (is_trial_)
    usual.num_drafts = tried;
  else if (usual.num_drafts > 0 || !is_other_noted)
    note_choice(usual);
  return usual;
}

// Returns true if the time without drafts is to be measured again. While drafts are played no other
// step shows it, and if the machine became faster drafts seem to gain what it gained.
bool SpeculationGate::is_plain_old(const Bucket& bucket, DraftTiming timing,
                                   const Estimate& usual) const {
  if (num_other_drafts_ > 0) return false;
  if (bucket.num_plain() < kGate.few_plain) return true;
  if (usual.num_drafts == 0 && timing == DraftTiming::now) return false;
  const auto since = static_cast<double>(bucket.num_steps - bucket.last_plain);
  const auto young = static_cast<double>(bucket.num_steps) / 2;
  if (usual.num_drafts == 0)
    return since >= std::clamp(young, kGate.first_rest_age, kGate.max_plain_age);
  const double lost = std::max(0.0, usual.gain) / (1 + std::max(0.0, usual.gain));
  const double rare = std::min(TrialPace::kSteps * lost / kGate.plain_share, young);
  return since >= std::clamp(rare, kGate.min_plain_age, kGate.max_plain_age);
}

// Returns the number with the largest expected gain for its expected loss; -1: none.
SpeculationGate::TrialCandidate SpeculationGate::best_trial_candidate(const Bucket& bucket,
                                                                      DraftTiming timing,
                                                                      const Estimate& usual,
                                                                      int num_answers) const {
  const double share =
      timing == DraftTiming::ahead ? kGate.credit_in_trial_ahead : kGate.credit_in_trial;
  TrialCandidate out;
  double best = 0;
  for (const Candidate& candidate : drafts_.candidates()) {
    const Estimate judged = judge(bucket, timing, num_answers, candidate);
    const double gain = judged.best_case - usual.gain;
    const double loss = std::max(0.0, usual.gain - judged.gain);
    if (DraftCosts::cell_of(candidate.num_drafts) == DraftCosts::cell_of(usual.num_drafts) ||
        gain <= kGate.min_trial_gain || kGate.steps_if_lost * loss > share * credit_)
      continue;
    const double value = gain / (loss + kGate.min_loss);
    if (value > best)
      best = value, out = {candidate.num_drafts, gain, judged.cost.num_measured < kGate.few};
  }
  return out;
}

// Sets is_trial_ and returns the number to try, if the step is for a trial. A trial that has shown
// to lose ends early.
int SpeculationGate::try_one(Bucket& bucket, DraftTiming timing, const Estimate& usual,
                             int num_answers) {
  if (!may_try_) return 0;
  const int most = drafts_.candidates().back().num_drafts;
  if (pace_.proposes() && trial_of_ == &bucket && trial_timing_ == timing) {
    const int tried = std::min(trial_drafts_, most);
    if (tried == 0 || pace_.is_cold() || may_gain(bucket, timing, usual, num_answers, tried)) {
      pace_.propose();
      is_trial_ = true;
      return tried;
    }
    pace_.stop();
  }
  if (!pace_.may_begin(true)) return 0;
  if (drafts_.has_free() && trial_timing_ == timing && ++num_yielded_ <= kGate.yield_steps)
    return 0;
  const bool shows_plain = is_plain_old(bucket, timing, usual);
  if (credit_ <= 0 && !shows_plain) return 0;
  const TrialCandidate promise = shows_plain
                                     ? TrialCandidate{.num_drafts = 0}
                                     : best_trial_candidate(bucket, timing, usual, num_answers);
  const bool is_frequent = bucket.way(timing).num_remaining_trials > 0 || shows_plain ||
                           (promise.gain > kGate.large_gain * (1 + usual.gain) &&
                            (promise.is_new || usual.num_drafts > 0));
  if (promise.num_drafts < 0 || !pace_.may_begin(is_frequent)) return 0;
  pace_.begin();
  num_yielded_ = 0;
  trial_of_ = &bucket, trial_timing_ = timing, trial_drafts_ = promise.num_drafts;
  is_trial_ = true;
  return trial_drafts_;
}

// Returns true if the number under trial may still turn out to be better than the usual one.
bool SpeculationGate::may_gain(const Bucket& bucket, DraftTiming timing, const Estimate& usual,
                               int num_answers, int num_drafts) const {
  const auto candidates = drafts_.candidates();
  const auto at = std::ranges::lower_bound(candidates, num_drafts, {}, &Candidate::num_drafts);
  return at == candidates.end() ||
         judge(bucket, timing, num_answers, *at).best_case > usual.gain + kGate.min_trial_gain;
}

}  // namespace hocket
