#include "policy/speculation/speculation_gate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace hocket {
namespace {

// Steps of a trial that are played if the first ones show that it loses.
constexpr int kStepsIfLost = TrialPace::kSteps - 1;
// In each kCommonPlainEvery steps no rank has drafts in the first kCommonPlainSteps
// (all_play_none()).
constexpr uint64_t kCommonPlainSteps = TrialPace::kSteps, kCommonPlainEvery = 1000;
// Credit from which a drafter that stopped follows again: all, less what one step may overdraw.
constexpr double kCreditToFollow = kGate.first_credit + kGate.min_credit;

}  // namespace

SpeculationGate::SpeculationGate(Options options) : drafts_(std::move(options)) {}

GateBucket& SpeculationGate::bucket_for(const CommonAnswers& answers, int64_t total_keys) {
  const auto [bucket, is_new] = buckets_.find(answers.all(), answers.all_keys(total_keys), growth_);
  if (is_new && trial_of_ == &bucket) trial_of_ = nullptr;
  return bucket;
}

void SpeculationGate::offer(const Offer& step, std::span<GateAnswer> answers) {
  note_waiting_step(step);
  is_trial_ = false;
  may_try_ = step.is_decode_only;
  drafts_.make(answers);
  common_.begin({static_cast<int>(answers.size()), step.num_other_answers}, step.num_other_drafts);
  has_common_none_ = all_play_none(step.number);
  if (drafts_.fixed()) {
    drafts_.list(DraftSet::made, answers, step.max_rows);
    share_out(std::max(step.max_rows, 0), answers);
    return;
  }
  GateBucket& bucket = bucket_for(common_.answers(), step.total_keys);
  if (drafts_.drafts_ahead()) return offer_with_prepared(bucket, step, answers);
  drafts_.list(DraftSet::made, answers, step.max_rows);
  share_out(has_common_none_ ? 0 : choose(bucket, DraftWay::now, 0).num_drafts, answers);
}

// Returns true if no rank has drafts in the step. While several ranks draft, no trial of one shows
// the time without drafts, so all have none in the same steps, which their number tells.
bool SpeculationGate::all_play_none(uint64_t number) const {
  return common_.answers().are_shared() && number % kCommonPlainEvery < kCommonPlainSteps;
}

void SpeculationGate::share_out(int num_drafts, std::span<GateAnswer> answers) {
  expected_ = drafts_.share_out(num_drafts, answers);
  num_offered_ = 0;
  for (const GateAnswer& answer : answers) num_offered_ += static_cast<int>(answer.drafts.size());
}

void SpeculationGate::offer_nothing(const Offer& step) {
  note_waiting_step(step);
  is_trial_ = has_common_none_ = false;
  if (!rests_ && !next_.ahead.follows) next_.ahead = {.follows = true, .num_drafts = 1};
}

// Returns the drafts that were chosen for this step and made ahead, or, if nothing was, free
// drafts; then chooses for the next step.
void SpeculationGate::offer_with_prepared(GateBucket& bucket, const Offer& step,
                                          std::span<GateAnswer> answers) {
  if (next_.is_trial && !may_try_) postpone_trial(bucket);
  way_ = next_.num_drafts > 0 || next_.is_trial ? DraftWay::ahead : DraftWay::now;
  bool is_trial = next_.is_trial;
  double free_gain = 0;
  if (drafts_.has_free()) drafts_.list(DraftSet::free, answers, step.max_rows);
  if (drafts_.has_free() && way_ == DraftWay::now && !has_common_none_) {
    const Estimate chosen = choose(bucket, DraftWay::now, 0);
    free_gain = chosen.gain;
    is_trial = is_trial_;
    share_out(chosen.num_drafts, answers);
  } else {
    if (drafts_.has_free()) free_gain = judge_all(bucket, DraftWay::now, 0).first.gain;
    drafts_.list(DraftSet::made, answers, step.max_rows);
    const int num = has_common_none_ ? 0 : next_.num_drafts;
    share_out(std::min(num, std::max(step.max_rows, 0)), answers);
  }
  is_trial_ = false;
  choose_drafts_ahead(bucket, step, answers, free_gain);
  next_.is_trial = std::exchange(is_trial_, is_trial);
}

// The number under trial was made ahead, before it was known that the step shows nothing. So the
// step has as many of these drafts as are usual.
void SpeculationGate::postpone_trial(const GateBucket& bucket) {
  const int usual = bucket.way(DraftWay::ahead).usual.num_drafts;
  next_.num_drafts = std::min(next_.num_drafts, common_.own_drafts(usual));
  next_.is_trial = false;
  pace_.postpone();
}

SpeculationGate::DraftsAhead SpeculationGate::ahead() const {
  if (drafts_.fixed()) return {.num_drafts = *drafts_.fixed()};
  DraftsAhead out = next_.ahead;
  out.follows_prompts = !rests_;
  return out;
}

// Chooses for the step after the one that is being offered, as if it had the same answers, they
// as much room, and the free drafter as much to offer. The drafter makes none in steps that are to
// show the time without it. In others it makes one draft at least: whether that is right is seen
// without its row.
void SpeculationGate::choose_drafts_ahead(GateBucket& bucket, const Offer& step,
                                          std::span<const GateAnswer> answers, double free_gain) {
  drafts_.list(DraftSet::next_step, answers, step.max_rows);
  if (all_play_none(step.number + 1)) {
    drafts_.assign(0);
    next_.num_drafts = 0;
    next_.ahead = {.follows = false, .num_drafts = 0};
    return;
  }
  // If all answers do better with free drafts, none has to be made ahead.
  if (drafts_.max_drafts_ahead() == 0) drafts_.drop_candidates();
  next_.num_drafts = choose(bucket, DraftWay::ahead, free_gain).num_drafts;
  const bool is_shown = is_trial_ || bucket.num_plain() < kGate.few_plain;
  const bool follows = next_.num_drafts > 0 || (!rests_ && !is_shown);
  drafts_.assign(next_.num_drafts);
  next_.ahead = {.follows = follows,
                 .num_drafts = std::max(follows ? 1 : 0, drafts_.max_drafts_ahead())};
}

SpeculationGate::Estimate SpeculationGate::judge(const GateBucket& bucket, DraftWay way,
                                                 const Candidate& candidate) const {
  const GateBucket::WayState& known = bucket.way(way);
  const double num_all = common_.all_drafts(candidate.num_drafts);
  const auto total = static_cast<int>(std::lround(num_all));
  Estimate out{.num_drafts = candidate.num_drafts, .cost = known.costs.of(total)};
  const double error = known.costs.error_between(total, known.usual.num_drafts);
  const double plain_tokens = bucket.tokens_per_plain_step(), ratio = out.cost.time_ratio;
  const double best_ratio = std::max(1.0, ratio * std::exp(-kGate.trial_errors * error));
  // An accepted draft of this rank stands for `part` tokens of each answer of all.
  const double part = num_all / candidate.num_drafts / common_.answers().all();
  out.tokens = 1 + candidate.accepted * part;
  const double prompts = way == DraftWay::ahead ? following_.of_step() : 0;
  out.gain = out.tokens - 1 - plain_tokens * (ratio - 1 + prompts);
  out.best_case = candidate.best_case * part - plain_tokens * (best_ratio - 1 + prompts);
  out.worst_case = out.gain - plain_tokens * ratio * error;
  return out;
}

// Returns the number of drafts that surely gains most, none included, and the best of the others.
// other_gain: as in choose().
std::pair<SpeculationGate::Estimate, SpeculationGate::Estimate> SpeculationGate::judge_all(
    const GateBucket& bucket, DraftWay way, double other_gain) const {
  const bool drafts_now = bucket.way(way).usual.num_drafts > 0;
  Estimate usual{.gain = other_gain, .worst_case = other_gain}, best;
  for (const Candidate& candidate : drafts_.candidates()) {
    const Estimate judged = judge(bucket, way, candidate);
    if (best.num_drafts == 0 || judged.gain > best.gain) best = judged;
    const double needed =
        std::max(drafts_now ? kGate.keep_gain : kGate.begin_gain, usual.worst_case);
    if (judged.worst_case > needed) usual = judged;
  }
  return {usual, best};
}

// Chooses a number of drafts of all answers together, none included, and notes the choice. It has
// to gain more than other_gain, which can be had otherwise.
SpeculationGate::Estimate SpeculationGate::choose(GateBucket& bucket, DraftWay way,
                                                  double other_gain) {
  const auto note_choice = [&bucket](const Estimate& chosen) {
    bucket.tokens_mean += kGate.mean_rate * (chosen.tokens - bucket.tokens_mean);
    bucket.time_ratio_mean += kGate.mean_rate * (chosen.cost.time_ratio - bucket.time_ratio_mean);
  };
  const bool is_other_noted = way == DraftWay::ahead && drafts_.has_free();
  // A step in which nothing can be drafted is no choice, but its time counts.
  if (drafts_.candidates().empty()) {
    if (!is_other_noted) note_choice({});
    return {};
  }
  // While others have drafts no step shows the time without, but it follows from those of other
  // sizes.
  const bool is_plain_known = common_.others_drafted() && last_plain_us_ > 0;
  if (bucket.num_plain() < kGate.few_plain && !is_plain_known) return {};
  auto [usual, best] = judge_all(bucket, way, other_gain);
  const auto as_choice = [this](const Estimate& judged) {
    return GateChoice{static_cast<int>(std::lround(common_.all_drafts(judged.num_drafts))),
                      judged.tokens, judged.cost.time_ratio, judged.cost.num_measured};
  };
  const int tried = try_one(bucket, way, usual);
  GateBucket::WayState& known = bucket.way(way);
  known.usual = as_choice(usual), known.best = as_choice(best);
  if (is_trial_)
    usual.num_drafts = tried;
  else if (usual.num_drafts > 0 || !is_other_noted)
    note_choice(usual);
  return usual;
}

// Returns true if the time without drafts is to be measured again. While drafts are played no other
// step shows it, and if the machine became faster drafts seem to gain what it gained.
bool SpeculationGate::is_time_without_drafts_old(const GateBucket& bucket, DraftWay way,
                                                 const Estimate& usual) const {
  if (common_.others_drafted()) return false;
  if (bucket.num_plain() < kGate.few_plain) return true;
  if (usual.num_drafts == 0 && way == DraftWay::now) return false;
  const auto since = static_cast<double>(bucket.num_steps - bucket.last_plain);
  const auto young = static_cast<double>(bucket.num_steps) / 2;
  if (usual.num_drafts == 0)
    return since >= std::clamp(young, kGate.first_rest_age, kGate.max_plain_age);
  const double lost = std::max(0.0, usual.gain) / (1 + std::max(0.0, usual.gain));
  const double rare = std::min(TrialPace::kSteps * lost / kGate.measuring_share, young);
  return since >= std::clamp(rare, kGate.min_plain_age, kGate.max_plain_age);
}

// Returns the number with the largest expected gain for its expected loss; -1: none.
SpeculationGate::TrialCandidate SpeculationGate::best_trial_candidate(const GateBucket& bucket,
                                                                      DraftWay way,
                                                                      const Estimate& usual) const {
  const double share = way == DraftWay::ahead ? kGate.credit_in_trial_ahead : kGate.credit_in_trial;
  TrialCandidate out;
  double best = 0;
  for (const Candidate& candidate : drafts_.candidates()) {
    const Estimate judged = judge(bucket, way, candidate);
    const double gain = judged.best_case - usual.gain;
    const double loss = std::max(0.0, usual.gain - judged.gain);
    if (DraftCosts::cell_of(candidate.num_drafts) == DraftCosts::cell_of(usual.num_drafts) ||
        gain <= kGate.begin_gain || kStepsIfLost * loss > share * credit_)
      continue;
    const double value = gain / (loss + kGate.min_loss);
    if (value > best)
      best = value, out = {candidate.num_drafts, gain, judged.cost.num_measured < kGate.few};
  }
  return out;
}

// Sets is_trial_ and returns the number to try, if the step is for a trial. A trial that has shown
// to lose ends early.
int SpeculationGate::try_one(GateBucket& bucket, DraftWay way, const Estimate& usual) {
  if (!may_try_) return 0;
  const int most = drafts_.candidates().back().num_drafts;
  if (pace_.proposes() && trial_of_ == &bucket && trial_way_ == way) {
    const int tried = std::min(trial_drafts_, most);
    if (tried == 0 || pace_.is_cold() || may_gain(bucket, way, usual, tried)) {
      pace_.propose();
      is_trial_ = true;
      return tried;
    }
    pace_.stop();
  }
  if (!pace_.may_begin(true)) return 0;
  if (drafts_.has_free() && trial_way_ == way && num_yielded_ < kGate.yield_steps) {
    ++num_yielded_;
    return 0;
  }
  const bool shows_plain = is_time_without_drafts_old(bucket, way, usual);
  if (credit_ <= 0 && !shows_plain) return 0;
  const TrialCandidate promise =
      shows_plain ? TrialCandidate{.num_drafts = 0} : best_trial_candidate(bucket, way, usual);
  const bool is_frequent = bucket.way(way).num_remaining_trials > 0 || shows_plain ||
                           (promise.gain > kGate.large_gain * (1 + usual.gain) &&
                            (promise.is_new || usual.num_drafts > 0));
  if (promise.num_drafts < 0 || !pace_.may_begin(is_frequent)) return 0;
  pace_.begin();
  num_yielded_ = 0;
  trial_of_ = &bucket, trial_way_ = way, trial_drafts_ = promise.num_drafts;
  is_trial_ = true;
  return trial_drafts_;
}

// Returns true if the number under trial may still turn out to be better than the usual one.
bool SpeculationGate::may_gain(const GateBucket& bucket, DraftWay way, const Estimate& usual,
                               int num_drafts) const {
  const auto candidates = drafts_.candidates();
  const auto at = std::ranges::lower_bound(candidates, num_drafts, {}, &Candidate::num_drafts);
  return at == candidates.end() ||
         judge(bucket, way, *at).best_case > usual.gain + kGate.begin_gain;
}

// Other ranks tell with their next step which drafts they had in this one.
void SpeculationGate::note_step(const Step& step) {
  if (waiting_) note_waiting_step({});
  if (step.num_other_answers <= 0 || step.num_answers <= 0 || step.overlaps)
    return note_step(step, 0);
  waiting_ = step;
}

// A step counts, but its time shows nothing, if another one than the next tells, or if the others
// have no answers any more: then they tell nothing.
void SpeculationGate::note_waiting_step(const Offer& next) {
  if (!waiting_) return;
  Step step = *std::exchange(waiting_, {});
  if (next.num_other_answers <= 0 || !next.last_was_noted) step.us = 0;
  note_step(step, next.num_other_drafts);
}

void SpeculationGate::note_step(const Step& step, int num_other_drafts) {
  ++totals_.num_steps, totals_.num_draft_steps += step.num_drafts > 0 ? 1 : 0;
  // If pages were short, drafts may have been cut, and the step is no trial.
  const int num_drafts = step.num_drafts + num_other_drafts;
  const bool is_plain = num_drafts == 0 && !step.follows;
  const bool is_shown = step.is_decode_only;
  const bool was_for_trial = std::exchange(is_trial_, false);
  const bool is_trial =
      was_for_trial && is_shown && (trial_drafts_ > 0 ? step.num_drafts > 0 : is_plain);
  const CommonAnswers answers(step.num_answers, step.num_other_answers);
  if (!was_for_trial && step.us > 0) common_.note(answers, step.num_drafts, num_other_drafts);
  // The first step of a trial, or of those without drafts on all ranks, and the first one behind.
  const bool is_apart = is_trial || has_common_none_;
  const bool is_cold = is_shown && std::exchange(was_apart_, is_apart) != is_apart;
  // A step that shows nothing is not counted, unless it was played for a trial nevertheless.
  if (is_shown || was_for_trial) pace_.note(is_trial || !is_shown);
  totals_.num_trial_steps += is_trial ? 1 : 0;
  note_prompts(step);
  // A rank may overlap its part of a step in which others have drafts.
  const bool is_known = step.us > 0 && !(step.overlaps && common_.others_drafted());
  if (!is_shown || step.num_answers <= 0 || !is_known) return;
  GateBucket& bucket = bucket_for(answers, step.total_keys);
  ++bucket.num_steps;
  if (drafts_.fixed() && step.num_drafts > 0)
    bucket.way(way_).usual = {.num_drafts = num_drafts, .tokens = tokens_an_answer(step)};
  bucket.num_draft_steps += step.num_drafts > 0 ? 1 : 0;
  if (is_trial) ++bucket.num_trial_steps, --bucket.way(trial_way_).num_remaining_trials;
  bucket.last_shape = {.decode_rows = answers.all(), .keys = answers.all_keys(step.total_keys)};
  if (is_plain) note_plain(bucket, step.us);
  const double reference_us = to_us(plain_times_.predict(bucket.last_shape));
  if (reference_us <= 0) return;
  const double ratio = step.us / reference_us;
  DraftCosts& costs = bucket.way(way_).costs;
  if (!is_cold && is_plain)
    for (GateBucket::WayState& way : bucket.ways) way.costs.note(0, ratio, totals_.num_steps);
  if (!is_cold && num_drafts > 0) costs.note(num_drafts, ratio, totals_.num_steps);
  growth_ = costs.growth();
  // A size without steps that show it is predicted by the others alone.
  bucket.plain_us = last_plain_us_ = reference_us * (costs.num_plain() > 0 ? costs.plain() : 1);
  credit_ = std::min(credit_ + kGate.measuring_share, kGate.first_credit);
  if (!is_plain && bucket.plain_us > 0) note_gain(bucket, step, num_drafts, is_trial);
  rests_ = credit_ <= 0 || (rests_ && credit_ < kCreditToFollow);
}

// Spreads the time of following prompts over the steps of answers, of which those with drafts that
// were made ahead have to gain it.
void SpeculationGate::note_prompts(const Step& step) {
  if (!drafts_.drafts_ahead() || last_plain_us_ <= 0) return;
  if (step.is_decode_only) {
    following_.note_answers();
  } else if (step.making_us > 0) {
    totals_.gained_us -= step.making_us;
    following_.note_prompts(step.making_us / last_plain_us_);
  }
}

// Returns the tokens that the step gave an answer, as the mean over those of all ranks.
double SpeculationGate::tokens_an_answer(const Step& step) const {
  const CommonAnswers answers(step.num_answers, step.num_other_answers);
  return 1 + static_cast<double>(step.num_tokens - step.num_answers) / answers.all();
}

// Books the time that a step has gained or lost. Trials, and rows that were computed for later
// drafts, pay out of the credit. Drafts that were made ahead for the usual steps pay into it, so
// that those who gain may go on a while where they do not. The credit counts the drafts that were
// expected to be accepted, not those that were: a run of bad luck would end their making for long.
// It counts the time that such steps are known to take, because drafts do not cause a slow
// machine.
void SpeculationGate::note_gain(const GateBucket& bucket, const Step& step, int num_drafts,
                                bool is_trial) {
  // The ranks share the time that the step took longer, and each has its own tokens.
  const int num_all = CommonAnswers(step.num_answers, step.num_other_answers).all();
  const double part = static_cast<double>(step.num_answers) / num_all;
  const double more_tokens = step.num_drafts > 0 ? tokens_an_answer(step) - 1 : 0;
  const double gained_us = bucket.plain_us * more_tokens - part * (step.us - bucket.plain_us);
  totals_.gained_us += gained_us;
  const bool is_usual = !is_trial && num_drafts > 0;
  if (!is_usual) totals_.trial_us += gained_us;
  const double making = step.making_us / bucket.plain_us;
  const double known = bucket.way(way_).costs.of(num_drafts).time_ratio;
  double gain = -making;
  // Grammars and short pages may have cut the drafts since they were offered.
  const double share = std::min(1.0, step.num_drafts / std::max<double>(1, num_offered_));
  const double accepted = share * expected_ * num_drafts / std::max(1, step.num_drafts);
  if (step.num_drafts > 0 && (is_trial || way_ == DraftWay::ahead))
    gain = 1 + accepted / num_all - (is_trial ? bucket.tokens_per_plain_step() : 1) * known;
  credit_ = std::clamp(credit_ + gain, kGate.min_credit, kGate.first_credit);
}

void SpeculationGate::note_plain(GateBucket& bucket, double us) {
  const double counted = bucket.note_plain(us);
  if (counted <= 0) return;
  const StepTimes before = plain_times_;
  plain_times_.note(bucket.last_shape, Duration(std::llround(counted * 1e3)));
  buckets_.change_reference(before, plain_times_);
}

GateState SpeculationGate::state() const {
  GateState out{
      .totals = totals_, .is_fixed = drafts_.fixed().has_value(), .knows_gain = last_plain_us_ > 0};
  out.buckets = buckets_.copies(drafts_.drafts_ahead());
  drafts_.acceptance().copy_to(out);
  return out;
}

}  // namespace hocket
