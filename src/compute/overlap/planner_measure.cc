// Measures steps, and plays finalists in order to measure them.
#include <algorithm>
#include <cmath>
#include <utility>

#include "compute/overlap/planner_state.h"

namespace hocket {
namespace {

// A burst of shadow runs or trials has this number of steps. The first one meets cold memory and is
// not counted.
constexpr int kBurst = 4;
// Reports after a burst, until proposals that were not played are given up.
constexpr int kShadowNotes = 4;
constexpr uint64_t kTrialGap = 2;  // steps by the usual plan between two bursts
// A finalist is tried if it would be the best, were its prediction wrong by the doubt of this
// bucket: kErrorsInDoubt times the error seen, kMostDoubt at most; kDoubtOfKind if its kind was not
// measured. After one burst, which a stall may have spoilt, it must be within kDoubtOfKind of the
// best; after kProven steps within kClose. Its trials end when its standard error is
// kWellKnownError, after kLeastWellKnown to kMostWellKnown steps. If the doubt is below kCertain
// there are no trials.
constexpr double kErrorsInDoubt = 1.5, kMostDoubt = 0.12, kDoubtOfKind = 0.3, kClose = 0.04,
                 kCertain = 0.005, kWellKnownError = 0.01;
constexpr int kProven = 2 * (kBurst - 1), kLeastWellKnown = 9, kMostWellKnown = 30;
// The longest expected time of a shadow run, as a multiple of the played plan's: as a rule; for a
// plan that is hardly known; and every kRarely-th turn, because a slow plan may have become faster.
constexpr double kAffordable = 1.3, kAffordableOnce = 2, kAffordableRarely = 3;
constexpr uint64_t kRarely = 3;

// A shift within this number of steps after another one is noise.
constexpr uint64_t kShiftsApart = 256;

}  // namespace

// Measuring.

void Planner::State::measure(PlannerRecord& record, const StepReport& step, const Plan& plan) {
  const Bucket bucket{record.border.phase, static_cast<int>(step.rows), step.kv_tokens};
  const int num_halves = options.orders->at(plan.order).num_halves;
  const auto halves = num_halves == 2 ? halves_of(bucket, plan.share, 1) : std::nullopt;
  OfPhase& phase = phases[static_cast<size_t>(bucket.phase)];
  const size_t of = index_of(kind(plan));
  if (is_shadow(step) && shadow.num_played == 0) return;
  ++phase.tried[of];
  // Sizes that the fit has not seen say nothing about plans.
  if (fit.num_seen(halves ? (*halves)[0] : bucket) >= kFew) {
    const double predicted_us = predict_step_us(question(bucket), plan);
    const double ratio = predicted_us > 0 ? static_cast<double>(step.step_us) / predicted_us : 0;
    if (ratio > 0) {
      record.ratio_for(plan).add(ratio);
      record.ratios[of].add(ratio);
      phase.ratios[of].add(ratio);
    }
  }
  fit.note(step, plan, num_halves);
  if (fit.num_link_shifts() != num_link_shifts) weaken_ratios();
  if (plan == record.plan) record.measured.add(step.step_us);
}

// The links seem to have changed their speed. What was measured before counts as a guess, and every
// bucket is searched again.
void Planner::State::weaken_ratios() {
  num_link_shifts = fit.num_link_shifts();
  if (std::exchange(shifted_at, num_steps) + kShiftsApart > num_steps) return;
  for (OfPhase& phase : phases)
    for (MeasuredRatio& ratio : phase.ratios) ratio.weaken();
  for (PlannerRecord& record : records) {
    for (MeasuredRatio& ratio : record.ratios) ratio.weaken();
    for (PlayedPlan& played : record.played) played.ratio.weaken();
    record.measured.clear();
    record.streak = 0;
    record.interval = 1;
    record.patience_shift = record.num_trial_steps = record.trials_at_change = 0;
  }
}

// Shadow runs.

// Returns a finalist if it is its turn:
//
//   choose()   P P P P u u .. P      P: the finalist, u: the usual plan
//   note()       P P P P u u ..      the next burst begins kTrialGap reports after the last P
//
// A burst that is not played is given up after kBurst + kShadowNotes reports.
std::optional<Plan> Planner::State::shadow_for(PlannerRecord& record, Phase phase) {
  constexpr auto kEvery = static_cast<uint64_t>(kBurst / kShadowShare);
  if (!is_automatic() || !record.is_searched) return std::nullopt;
  if (shadow.proposals_left > 0 && phase == shadow.phase) {
    --shadow.proposals_left;
    return shadow.plan;
  }
  if (shadow.notes_left > 0 || shadow.any_since < kTrialGap) return std::nullopt;
  const auto trial = next_trial(record);
  if (!trial && shadow.steps_since < kEvery) return std::nullopt;
  const size_t other_phase = 1 - static_cast<size_t>(phase);
  if (std::exchange(shadow.missed_here[static_cast<size_t>(phase)], false) &&
      phases[other_phase].tried != std::array<uint64_t, 3>{})
    return std::nullopt;  // it is the other phase's turn
  const std::optional<Plan> best = trial ? trial : runner_up(record);
  if (best)
    begin_burst(*best, phase, trial.has_value());
  else
    shadow.steps_since = 0;
  return best;
}

void Planner::State::begin_burst(const Plan& plan, Phase phase, bool is_trial) {
  shadow.plan = plan;
  shadow.phase = phase;
  shadow.is_trial = is_trial;
  shadow.proposals_left = kBurst - 1;
  shadow.notes_left = kBurst + kShadowNotes;
  shadow.num_played = 0;
}

// Returns the finalist for a shadow run: the one expected to be fastest, 1 % a measurement in
// favour of less known ones. Every kRarely-th turn it is one of another kind, up to
// kAffordableRarely times as slow.
std::optional<Plan> Planner::State::runner_up(const PlannerRecord& record) {
  const double now_us = expected_now(record).us;
  const bool is_rare = ++shadow.num_turns % kRarely == 0;
  const size_t rare_kind =
      (index_of(kind(record.plan)) + 1 + shadow.num_turns / kRarely % 2) % kPlanKinds.size();
  std::optional<Plan> best;
  double least = 0;
  for (const Candidate& candidate : record.finalists()) {
    if (candidate.plan == record.plan) continue;
    if (is_rare && index_of(kind(candidate.plan)) != rare_kind) continue;
    const MeasuredRatio* own = record.ratio_of(candidate.plan);
    const int known = own != nullptr ? own->count() : 0;
    const double us = expected(record, candidate).us;
    const double affordable = is_rare        ? kAffordableRarely
                              : known < kFew ? kAffordableOnce
                                             : kAffordable;
    if (us > now_us * affordable) continue;
    const double score = us * (1 + 0.01 * known);
    if (best && score >= least) continue;
    best = candidate.plan, least = score;
  }
  return best;
}

// Trials.

// Returns how far the predictions of two plans may be off against each other here, as a fraction:
// about as far as predictions are from what is measured.
double Planner::State::doubt(const PlannerRecord& record) const {
  double off = 0;
  for (const MeasuredRatio& ratio : record.ratios)
    if (ratio.count() > 0) off = std::max(off, std::abs(ratio.median() - 1));
  return std::min(kErrorsInDoubt * std::max(off, noise(record)), kMostDoubt);
}

// Returns the least known of the finalists that may be the best.
std::optional<Plan> Planner::State::next_trial(const PlannerRecord& record) const {
  const MeasuredRatio* now = record.ratio_of(record.plan);
  if (record.num_trial_steps >= kMostTrialSteps || now == nullptr || now->count() < kFew)
    return std::nullopt;
  const double doubts = doubt(record);
  if (doubts < kCertain) return std::nullopt;
  double best_us = expected_now(record).us;
  for (const Candidate& candidate : record.finalists())
    best_us = std::min(best_us, expected(record, candidate).us);
  const double close_us = best_us * (1 + std::min(doubts, kClose));
  const auto unknown_us = [&](PlanKind of) {
    return best_us * (1 + (record.ratios[index_of(of)].count() < kFew ? kDoubtOfKind : doubts));
  };
  const double steps = std::pow(noise(record) / kWellKnownError, 2);
  const int well_known =
      static_cast<int>(std::clamp<double>(steps, kLeastWellKnown, kMostWellKnown));
  std::optional<Plan> next;
  std::pair<int, double> least;
  for (const Candidate& candidate : record.finalists()) {
    if (candidate.plan == record.plan) continue;
    const MeasuredRatio* own = record.ratio_of(candidate.plan);
    const int known = own != nullptr ? own->count() : 0;
    const double us = expected(record, candidate).us;
    const double limit_us = known == 0        ? unknown_us(kind(candidate.plan))
                            : known < kProven ? best_us * (1 + kDoubtOfKind)
                                              : close_us;
    if (known >= well_known || us >= limit_us) continue;
    const std::pair score{known / kFew, us};
    if (next && score >= least) continue;
    next = candidate.plan, least = score;
  }
  return next;
}

// True if the step belongs to the burst that is under way.
bool Planner::State::is_shadow(const StepReport& step) const {
  return shadow.notes_left > 0 && step.plan == static_cast<uint32_t>(id_of(shadow.plan)) &&
         step.phase == static_cast<uint8_t>(shadow.phase);
}

void Planner::State::note_shadow(PlannerRecord& record, const StepReport& step) {
  ++shadow.steps_since, ++shadow.any_since;
  if (shadow.notes_left == 0) return;
  if (is_shadow(step)) {
    ++shadow.num_played;
    shadow.any_since = 0;
    if (shadow.is_trial) {
      ++num_trial_steps, ++record.num_trial_steps;
    } else {
      ++num_shadow_steps, ++record.num_shadow_steps;
      shadow.steps_since = 0;
    }
  }
  if (--shadow.notes_left > 0 && shadow.num_played < kBurst) return;
  shadow.notes_left = shadow.proposals_left = 0;
  if (shadow.num_played == 0) shadow.missed_here[static_cast<size_t>(shadow.phase)] = true;
}

void Planner::State::tell(PlannerRecord& record) {
  record.is_told = true;
  const auto end = news.begin() + static_cast<std::ptrdiff_t>(num_news);
  if (num_news < kMostNews && std::find(news.begin(), end, &record) == end)
    news[num_news++] = &record;
}

}  // namespace hocket
