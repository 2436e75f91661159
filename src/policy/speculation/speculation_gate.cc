#include "policy/speculation/speculation_gate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "policy/speculation/gate_text.h"

namespace hocket {
namespace {

// Returns the smallest power of two, or 1.5 times one, that is not below n.
int answers_border(int n) {
  const auto power = static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(n, 1))));
  return power >= 4 && n <= power / 4 * 3 ? power / 4 * 3 : power;
}

int64_t keys_border(int64_t keys_an_answer) {
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(keys_an_answer, kGate.few_keys))));
}

}  // namespace

SpeculationGate::SpeculationGate(Options options)
    : drafts_(std::move(options)), buckets_(static_cast<size_t>(kGate.max_buckets)) {}

// Returns the bucket of the size; if there is none, the one that was used longest ago begins anew.
SpeculationGate::Bucket& SpeculationGate::bucket_for(int num_answers, int64_t total_keys) {
  const int border = answers_border(num_answers);
  const int64_t border_keys = keys_border(total_keys / std::max(num_answers, 1));
  auto found = std::ranges::find_if(buckets_, [&](const Bucket& bucket) {
    return bucket.num_answers == border && bucket.answer_keys == border_keys;
  });
  if (found == buckets_.end()) {
    found = std::ranges::min_element(buckets_, {}, &Bucket::last_used);
    if (trial_of_ == &*found) trial_of_ = nullptr;
    *found = {.num_answers = border, .answer_keys = border_keys};
    for (TimingState& way : found->ways) way.costs.begin(border, growth_);
  }
  found->last_used = ++clock_;
  return *found;
}

void SpeculationGate::offer(const Offer& step, std::span<GateAnswer> answers) {
  is_trial_ = false;
  may_try_ = step.is_pure;
  drafts_.make(answers);
  const auto num_answers = static_cast<int>(answers.size());
  num_sharing_ = std::max(1, num_answers + step.num_other_answers);
  num_other_drafts_ = step.num_other_drafts;
  const int max_rows = step.max_rows;
  if (drafts_.fixed()) {
    drafts_.list(DraftSet::made, answers, max_rows);
    share_out(std::max(max_rows, 0), answers);
    return;
  }
  Bucket& bucket = bucket_for(num_answers, step.total_keys);
  if (drafts_.drafts_ahead()) return offer_with_prepared(bucket, answers, max_rows);
  drafts_.list(DraftSet::made, answers, max_rows);
  share_out(choose(bucket, DraftTiming::now, num_sharing_, 0).num_drafts, answers);
}

void SpeculationGate::share_out(int num_drafts, std::span<GateAnswer> answers) {
  expected_ = drafts_.share_out(num_drafts, answers);
  num_offered_ = 0;
  for (const GateAnswer& answer : answers) num_offered_ += static_cast<int>(answer.drafts.size());
}

void SpeculationGate::offer_nothing() {
  is_trial_ = false;
  if (!rests_ && !next_.ahead.follows) next_.ahead = {.follows = true, .depth = 1};
}

// Hands out what was chosen for this step and made ahead, or, if nothing was, free drafts; then
// chooses for the next step.
void SpeculationGate::offer_with_prepared(Bucket& bucket, std::span<GateAnswer> answers,
                                          int max_rows) {
  if (next_.is_trial && !may_try_) postpone_trial(bucket);
  timing_ = next_.num_drafts > 0 || next_.is_trial ? DraftTiming::ahead : DraftTiming::now;
  bool is_trial = next_.is_trial;
  double free_gain = 0;
  if (drafts_.has_free()) drafts_.list(DraftSet::free, answers, max_rows);
  if (drafts_.has_free() && timing_ == DraftTiming::now) {
    const Estimate chosen = choose(bucket, DraftTiming::now, num_sharing_, 0);
    free_gain = chosen.gain;
    is_trial = is_trial_;
    share_out(chosen.num_drafts, answers);
  } else {
    if (drafts_.has_free())
      free_gain = judge_all(bucket, DraftTiming::now, num_sharing_, 0).first.gain;
    drafts_.list(DraftSet::made, answers, max_rows);
    share_out(std::min(next_.num_drafts, std::max(max_rows, 0)), answers);
  }
  is_trial_ = false;
  choose_drafts_ahead(bucket, answers, max_rows, free_gain);
  next_.is_trial = std::exchange(is_trial_, is_trial);
}

// The number under trial was made ahead, before it was known that the step shows nothing. So the
// step has as many of these drafts as are usual.
void SpeculationGate::postpone_trial(const Bucket& bucket) {
  next_.num_drafts = std::min(next_.num_drafts, bucket.way(DraftTiming::ahead).usual.num_drafts);
  next_.is_trial = false;
  pace_.postpone();
}

SpeculationGate::DraftsAhead SpeculationGate::ahead() const {
  return drafts_.fixed() ? DraftsAhead{.depth = *drafts_.fixed()} : next_.ahead;
}

// Chooses for the step after the one that is being offered, as if it had the same answers, they
// as much room, and the free drafter as much to offer. The drafter rests in steps that are to show
// the time without it. In others it makes one draft at least: whether that holds is seen without
// its row.
void SpeculationGate::choose_drafts_ahead(Bucket& bucket, std::span<const GateAnswer> answers,
                                          int max_rows, double free_gain) {
  drafts_.list(DraftSet::next_step, answers, max_rows);
  // If all answers do better with free drafts, none has to be made ahead.
  if (drafts_.max_drafts_ahead() == 0) drafts_.drop_candidates();
  next_.num_drafts = choose(bucket, DraftTiming::ahead, num_sharing_, free_gain).num_drafts;
  const bool is_shown = is_trial_ || bucket.num_plain() < kGate.few_plain;
  const bool follows = next_.num_drafts > 0 || (!rests_ && !is_shown);
  drafts_.assign(next_.num_drafts);
  next_.ahead = {.follows = follows,
                 .depth = std::max(follows ? 1 : 0, drafts_.max_drafts_ahead())};
}

void SpeculationGate::note_step(const Step& step) {
  ++totals_.num_steps;
  totals_.num_draft_steps += step.num_drafts > 0 ? 1 : 0;
  // If pages were short, drafts may have been cut, and the step is no trial. In a trial of 0 drafts
  // the step has none and nothing is followed.
  const bool is_plain = step.num_drafts == 0 && !step.follows;
  // Where only others have drafts, the time shows neither theirs nor that without any.
  const bool is_shown = step.is_pure && (step.num_drafts > 0 || num_other_drafts_ == 0);
  const bool was_for_trial = std::exchange(is_trial_, false);
  const bool is_trial =
      was_for_trial && is_shown && (trial_drafts_ > 0 ? step.num_drafts > 0 : is_plain);
  // The first step of a trial, and the first one behind it. Steps that show nothing may lie between
  // those of a trial.
  const bool is_cold = is_shown && std::exchange(was_trial_, is_trial) != is_trial;
  // A step that shows nothing is not counted, unless it was played for a trial nevertheless.
  if (is_shown || was_for_trial) pace_.note(is_trial || !is_shown);
  totals_.num_trial_steps += is_trial ? 1 : 0;
  note_prompts(step);
  if (!is_shown || step.num_answers <= 0 || !(step.us > 0)) return;

  Bucket& bucket = bucket_for(step.num_answers, step.total_keys);
  ++bucket.num_steps;
  if (drafts_.fixed() && step.num_drafts > 0)
    bucket.way(timing_).usual = {.num_drafts = step.num_drafts, .tokens = tokens_an_answer(step)};
  bucket.num_draft_steps += step.num_drafts > 0 ? 1 : 0;
  if (is_trial) ++bucket.num_trial_steps, --bucket.way(trial_timing_).num_remaining_trials;
  const StepShape shape{.decode_rows = step.num_answers, .keys = step.total_keys};
  if (is_plain) {
    bucket.last_plain = bucket.num_steps;
    note_plain(bucket, shape, step.us);
  }
  const double reference_us = to_us(plain_times_.predict(shape));
  if (reference_us <= 0) return;
  const double ratio = step.us / reference_us;
  DraftCosts& costs = bucket.way(timing_).costs;
  if (!is_cold && is_plain)
    for (TimingState& way : bucket.ways) way.costs.note(0, ratio, totals_.num_steps);
  if (!is_cold && step.num_drafts > 0) costs.note(step.num_drafts, ratio, totals_.num_steps);
  growth_ = costs.growth();
  bucket.plain_us = last_plain_us_ = reference_us * costs.plain();
  credit_ = std::min(credit_ + kGate.credit_share, kGate.first_credit);
  if (!is_plain && bucket.plain_us > 0) note_gain(bucket, step, is_trial);
  rests_ = credit_ <= 0 || (rests_ && credit_ < kGate.credit_to_follow);
}

// Spreads the time of following prompts over the steps of answers, of which those with drafts that
// were made ahead have to gain it.
void SpeculationGate::note_prompts(const Step& step) {
  if (!drafts_.drafts_ahead() || last_plain_us_ <= 0) return;
  if (step.is_pure) {
    prompts_cost_ *= kGate.prompts_decay;
    prompts_steps_ = prompts_steps_ * kGate.prompts_decay + 1;
  } else if (step.making_us > 0) {
    totals_.gained_us -= step.making_us;
    prompts_cost_ += step.making_us / last_plain_us_;
  }
}

// Returns the tokens that the step gave an answer, as the mean over those of all ranks.
double SpeculationGate::tokens_an_answer(const Step& step) const {
  return 1 + static_cast<double>(step.num_tokens - step.num_answers) / num_sharing_;
}

// Adds the drafts of other ranks that will hold. They are expected to hold as this rank's do: if
// each rank counted its own alone, all would find drafts too dear that pay for all together.
double SpeculationGate::held_of_all(double held, int num_drafts) const {
  return num_drafts > 0 ? held * (1 + static_cast<double>(num_other_drafts_) / num_drafts) : held;
}

// Books the time that a step has gained or lost. Trials, and rows that were computed for later
// drafts, pay out of the credit. Drafts that were made ahead for the usual steps pay into it, so
// that those who gain may go on a while where they do not. The credit counts the drafts that were
// expected to hold, not those that did: a run of bad luck would end their making for long. It
// counts the time that such steps are known to take, because drafts are not to blame for a slow
// machine.
void SpeculationGate::note_gain(const Bucket& bucket, const Step& step, bool is_trial) {
  // The ranks share the time that the step took longer, and each has its own tokens.
  const double part = static_cast<double>(step.num_answers) / num_sharing_;
  const double more_tokens = step.num_drafts > 0 ? tokens_an_answer(step) - 1 : 0;
  const double gained_us = bucket.plain_us * more_tokens - part * (step.us - bucket.plain_us);
  totals_.gained_us += gained_us;
  const bool is_usual = !is_trial && step.num_drafts > 0;
  if (!is_usual) totals_.trial_us += gained_us;
  const double making = step.making_us / bucket.plain_us;
  const double known = bucket.way(timing_).costs.of(step.num_drafts).time_ratio;
  double gain = -making;
  // Grammars and short pages may have cut the drafts since they were offered.
  const double share = std::min(1.0, step.num_drafts / std::max<double>(1, num_offered_));
  const double held = held_of_all(share * expected_, step.num_drafts);
  if (step.num_drafts > 0 && (is_trial || timing_ == DraftTiming::ahead))
    gain = 1 + held / num_sharing_ - (is_trial ? worth_of(bucket) : 1) * known;
  credit_ = std::clamp(credit_ + gain, kGate.min_credit, kGate.first_credit);
}

// The first steps of a size may be slow for other reasons, such as cold caches, and the fit would
// take very long to forget them. So it begins after them, and a step that is much slower than those
// before it counts less.
void SpeculationGate::note_plain(Bucket& bucket, const StepShape& shape, double us) {
  bucket.plain_steps.add(static_cast<float>(us));
  if (bucket.plain_steps.count() < kGate.few) return;
  const double counted = std::min(us, kGate.max_off * bucket.plain_steps.median());
  plain_times_.note(shape, Duration(std::llround(counted * 1e3)));
}

GateState SpeculationGate::state() const {
  GateState out{
      .totals = totals_, .is_fixed = drafts_.fixed().has_value(), .knows_gain = last_plain_us_ > 0};
  for (const Bucket& bucket : buckets_) {
    if (bucket.num_answers == 0 || bucket.num_steps == 0) continue;
    const TimingState &now = bucket.way(DraftTiming::now), &ahead = bucket.way(DraftTiming::ahead);
    const bool by_ahead =
        drafts_.drafts_ahead() &&
        (ahead.usual.num_drafts > 0 || (now.usual.num_drafts == 0 && now.best.num_drafts == 0));
    const TimingState& used = by_ahead ? ahead : now;
    GateState::Bucket copy{.num_answers = bucket.num_answers,
                           .answer_keys = bucket.answer_keys,
                           .num_steps = bucket.num_steps,
                           .num_draft_steps = bucket.num_draft_steps,
                           .num_trial_steps = bucket.num_trial_steps,
                           .usual = used.usual,
                           .best = used.best,
                           .plain_us = bucket.plain_us};
    copy.text = text_of(copy, out.is_fixed);
    out.buckets.push_back(std::move(copy));
  }
  std::ranges::sort(out.buckets, {}, [](const GateState::Bucket& each) {
    return std::tuple(each.num_answers, each.answer_keys);
  });
  for (int kind = 0; kind < kDraftKinds; ++kind)
    for (int i = 0; i < kMaxDrafts; ++i) {
      const auto row = static_cast<size_t>(kind), at = static_cast<size_t>(i);
      out.acceptance[row][at] = drafts_.acceptance().of_group(kind, i);
      out.num_seen[row][at] = drafts_.acceptance().num_seen(kind, i);
    }
  return out;
}

}  // namespace hocket
