// What steps took, and steps that are played to see what they take.
#include <algorithm>
#include <utility>

#include "compute/overlap/planner_state.h"

namespace hocket {
namespace {

// Shadow runs come so many at a time: the first meets cold memory and is not counted.
constexpr int kBurst = 4;
constexpr int kShadowNotes = 4;  // what was proposed is played by then, or was not
// What a shadow run may take, as a multiple of what is played: as a rule; of what is hardly known;
// now and then, so that what was bad once may have become better.
constexpr double kAffordable = 1.3, kAffordableOnce = 2, kAffordableRarely = 3;
constexpr uint64_t kRarely = 4;

constexpr uint64_t kShiftsApart = 256;  // steps; links that shift more often are noise

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
  // What the fit has not seen says nothing about plans.
  if (fit.num_seen(halves ? (*halves)[0] : bucket) >= kFew) {
    const double predicted_us = predict_step_us(question(bucket), plan);
    const double ratio = predicted_us > 0 ? static_cast<double>(step.step_us) / predicted_us : 0;
    if (ratio > 0) {
      record.ratios[of].add(ratio);
      phase.ratios[of].add(ratio);
    }
  }
  fit.note(step, plan, num_halves);
  if (fit.num_link_shifts() != num_link_shifts) forget_ratios();
  if (plan == record.plan) record.measured.add(step.step_us);
}

// Links have become others: what was measured before says nothing, and all is to be searched.
void Planner::State::forget_ratios() {
  num_link_shifts = fit.num_link_shifts();
  const bool is_rare = num_steps - shifted_at >= kShiftsApart;
  shifted_at = num_steps;
  for (OfPhase& phase : phases)
    for (MeasuredRatio& ratio : phase.ratios) ratio.clear();
  for (PlannerRecord& record : records) {
    for (MeasuredRatio& ratio : record.ratios) ratio.clear();
    record.measured.clear();
    record.streak = 0;
    record.interval = 1;
    if (is_rare) record.patience_shift = 0;
  }
}

// Shadow runs.

// The runner-up of another kind, if its turn has come: the best one, first those that are hardly
// known.
std::optional<Plan> Planner::State::shadow_for(PlannerRecord& record, Phase phase) {
  constexpr auto kEvery = static_cast<uint64_t>(kBurst / kShadowShare);
  if (!is_automatic() || !record.is_searched) return std::nullopt;
  if (shadow.proposals_left > 0 && phase == shadow.phase) {
    --shadow.proposals_left;
    return shadow.plan;
  }
  if (shadow.notes_left > 0 || shadow.steps_since < kEvery) return std::nullopt;
  const size_t other_phase = 1 - static_cast<size_t>(phase);
  if (std::exchange(shadow.missed_here[static_cast<size_t>(phase)], false) &&
      phases[other_phase].tried != std::array<uint64_t, 3>{})
    return std::nullopt;  // the other phase's turn
  const std::optional<Plan> best = runner_up(record);
  if (!best) {
    shadow.steps_since = 0;
    return std::nullopt;
  }
  shadow.plan = *best;
  shadow.phase = phase;
  shadow.proposals_left = kBurst - 1;
  shadow.notes_left = kBurst + kShadowNotes;
  shadow.num_played = 0;
  return best;
}

std::optional<Plan> Planner::State::runner_up(const PlannerRecord& record) {
  const double now_us = times_of(record).plan_us;
  const bool is_rare = ++shadow.num_turns % kRarely == 0;
  std::optional<Plan> best;
  double least = 0;
  for (const PlanKind of : kPlanKinds) {
    const Candidate& candidate = record.found.best[index_of(of)];
    if (of == kind(record.plan) || candidate.step_us <= 0) continue;
    const int known = record.ratios[index_of(of)].count();
    const double us = expected(record, of, candidate.step_us).us;
    const bool is_dear = us > now_us * (known < kFew ? kAffordableOnce : kAffordable);
    if (is_dear && (!is_rare || us > now_us * kAffordableRarely)) continue;
    const double score = is_dear ? 0 : us * (1 + 0.05 * std::min(known, 2 * kFew));
    if (best && score >= least) continue;
    best = candidate.plan, least = score;
  }
  return best;
}

// Whether it is of the burst under way.
bool Planner::State::is_shadow(const StepReport& step) const {
  return shadow.notes_left > 0 && step.plan == static_cast<uint32_t>(id_of(shadow.plan)) &&
         step.phase == static_cast<uint8_t>(shadow.phase);
}

void Planner::State::note_shadow(PlannerRecord& record, const StepReport& step) {
  ++shadow.steps_since;
  if (shadow.notes_left == 0) return;
  if (is_shadow(step)) {
    ++shadow.num_played;
    ++num_shadow_steps, ++record.num_shadow_steps;
    shadow.steps_since = 0;
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
