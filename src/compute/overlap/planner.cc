#include "compute/overlap/planner.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <utility>

#include "base/check.h"

namespace hocket {
namespace {

// Returns the candidate with the lowest optimistic time, which is its expected time less its
// uncertainty; nothing if another one is expected to be faster than even that.
std::optional<Plan> best_trial_candidate(const PlanRecord& record) {
  // Returns the part of a doubt that remains once n steps were measured.
  const auto part = [](double uncertainty, int n) {
    return uncertainty * kTuning.guess_weight / (n + kTuning.guess_weight);
  };
  const Correction correction(record);
  if (correction.uncertainty() < kTuning.min_trial_doubt) return std::nullopt;
  double best_us = correction.of(record.played).us, min_us = best_us;
  const Candidate* best = nullptr;
  for (const Candidate& candidate : record.found.candidates) {
    const Expected expected = correction.of(candidate);
    best_us = std::min(best_us, expected.us);
    if (candidate.plan.equals_but_for_share(record.played.plan)) continue;
    const int of_kind = correction.num_measured(candidate.kind);
    const double reach = of_kind < kTuning.min_measured
                             ? part(kTuning.doubt_of_unmeasured_kind, of_kind)
                             : part(correction.uncertainty(), expected.num_measured) +
                                   (expected.num_measured > 0 ? expected.error : 0);
    const double us = expected.us * (1 - reach);
    if (best == nullptr || us < min_us) best = &candidate, min_us = us;
  }
  return best != nullptr && min_us < best_us ? std::optional(best->plan) : std::nullopt;
}

}  // namespace

std::optional<Plan> Trials::next(const PlanRecord& record) {
  if (pace_.proposes() && record.border == border_) {
    pace_.propose();
    return plan_;
  }
  if (!is_likely(record.border.phase) || record.measured.count() < kTuning.min_measured ||
      !pace_.may_begin(record.num_remaining_trial_steps > 0))
    return std::nullopt;
  const auto plan = best_trial_candidate(record);
  if (!plan) return std::nullopt;
  plan_ = *plan, border_ = record.border;
  pace_.begin();
  return plan;
}

bool Trials::is_tried(const StepReport& step) const {
  return pace_.under_way() && step.plan == static_cast<uint32_t>(id_of(plan_)) &&
         step.phase == static_cast<uint8_t>(border_.phase);
}

bool Trials::note(PlanRecord& record, const StepReport& step) {
  last_phase_ = record.border.phase;
  const bool is_one = is_tried(step);
  if (is_one) ++record.num_trial_steps, --record.num_remaining_trial_steps;
  pace_.note(is_one);
  return is_one;
}

Planner::Planner(const Options& options) : options_(options), fit_(options.layers, options.prior) {
  HOCKET_CHECK(options.orders != nullptr && options.clock != nullptr);
  records_.reserve(kTuning.max_buckets);
  for (int i = 0; i < kTuning.max_buckets; ++i)
    records_.emplace_back(max_candidates(*options.orders), &ratios_);
}

SearchInput Planner::input(const Bucket& bucket) const {
  LayerCounts layers = options_.layers;
  layers.other_us = fit_.other_us(bucket);
  return {fit_, *options_.orders, layers, bucket, options_.row_tile};
}

// Returns the record of the bucket; if there is none, the one that was used longest ago begins
// again for it.
PlanRecord& Planner::record_for(const Bucket& bucket) {
  const Bucket border = border_of(bucket);
  auto found = std::ranges::find_if(records_, [&](const PlanRecord& record) {
    return record.last_used > 0 && record.border == border;
  });
  if (found == records_.end()) {
    found = std::ranges::min_element(records_, {}, &PlanRecord::last_used);
    const Plan plan =
        first_plan(options_.choices[index_of(bucket.phase)], bucket.phase, *options_.orders);
    found->begin(bucket, {plan, kind_of(plan, *options_.orders)});
  }
  found->last_used = ++clock_;
  return *found;
}

// A bucket is searched often at first and after each change, later less and less often; also one
// whose steps turn out to belong to another bucket. Candidates learn from new times by searches, so
// the time for searches must not go to a phase that is not played.
void Planner::search_for(PlanRecord& record) {
  const bool is_due = record.found.candidates.empty() ||
                      record.num_asked_since_search >=
                          std::min(1 + record.num_asked_since_change / 2, kTuning.max_between);
  if (!is_due || credit_us_ <= 0) return;
  const TimePoint begin = options_.clock->now();
  const bool is_first = record.found.candidates.empty();
  const SearchInput asked = input(record.size());
  record.found = search(asked, std::move(record.found));
  record.played.step_us = predict_plan(asked, record.played.plan).step_us;
  record.num_asked_since_search = 0;
  // Without a step, only predictions can favour another plan. Forced halves begin with
  // SGLang's orders whatever is predicted, and leave them once these were measured.
  const bool may_at_once = choice_for(record).mode != OverlapChoice::Mode::two_batch;
  if (may_at_once && (is_first || record.num_steps == 0)) decide(record, true);
  const double took_us = to_us(options_.clock->now() - begin);
  credit_us_ -= took_us;
  ++totals_.num_searches, totals_.search_seconds += took_us / 1e6;
}

// Adopts the plan that is expected to be fastest, if it is better by enough for long enough. The
// errors of two plans of one kind are much alike, so they count only if both plans were measured.
void Planner::decide(PlanRecord& record, bool at_once) {
  const Correction correction(record);
  const OverlapChoice& choice = choice_for(record);
  const Candidate* best = nullptr;
  Expected then;
  for (const Candidate& candidate : record.found.candidates) {
    if (candidate.plan == record.played.plan || !allows(choice, candidate.kind)) continue;
    // A kind of which one or two measurements are remembered is tried before it is chosen.
    const int of_kind = correction.num_measured(candidate.kind);
    if (candidate.kind != record.played.kind && of_kind > 0 && of_kind < kTuning.min_measured)
      continue;
    const Expected expected = correction.of(candidate);
    if (best == nullptr || expected.us < then.us) best = &candidate, then = expected;
  }
  if (best == nullptr) return;
  const Expected now = correction.of(record.played);
  const bool are_known = std::min(now.num_measured, then.num_measured) >= kTuning.min_measured;
  const bool are_alike = best->kind == record.played.kind;
  const bool is_guess = are_alike && !are_known;
  const double margin = are_alike ? kTuning.same_kind : kTuning.other_kind;
  const double errors = is_guess ? 0 : std::hypot(now.error, then.error);
  if (then.us >= now.us * (1 - margin - kTuning.margin_in_errors * errors)) {
    record.evidence = 0;
    return;
  }
  record.evidence += is_guess ? 1 : 1 + static_cast<int>((1 - then.us / now.us) / margin);
  if (!at_once && record.evidence < kTuning.evidence_needed) return;
  record.adopt(*best);
  record.has_log_line = is_automatic(record);
}

// Predicts a plan again from the times that its trial has taught, because the next search may be
// far. The ratio of measured to predicted times does not hold them: it is near 1 once they are
// learned. The other candidates keep the predictions of the last search, so the new one is brought
// to their level by the plan that is played.
void Planner::renew(PlanRecord& record, const Plan& tried) const {
  const auto candidate = std::ranges::find(record.found.candidates, tried, &Candidate::plan);
  if (candidate == record.found.candidates.end() || tried == record.played.plan) return;
  const SearchInput asked = input(record.size());
  const double played_us = predict_plan(asked, record.played.plan).step_us;
  if (played_us <= 0) return;
  candidate->step_us = predict_plan(asked, tried).step_us * record.played.step_us / played_us;
}

void Planner::measure(PlanRecord& record, const StepReport& step, const Plan& plan) {
  const Bucket bucket{record.border.phase, static_cast<int>(step.rows), step.kv_tokens};
  const int num_halves = options_.orders->at(plan.order).num_halves;
  const auto halves = num_halves == 2 ? halves_of(bucket, plan.share, 1) : std::nullopt;
  if (trials_.is_cold(step)) return;
  // Sizes that the fit has not seen say nothing about plans.
  if (fit_.num_seen(halves ? (*halves)[0] : bucket) >= kTuning.min_measured) {
    const PlanKind kind = kind_of(plan, *options_.orders);
    const double predicted_us = predict_plan(input(bucket), plan).step_us;
    if (predicted_us > 0 && step.step_us > 0) {
      record.note_ratio({plan, kind}, step.step_us / predicted_us);
      ratios_[index_of(bucket.phase)][index_of(kind)].add(step.step_us / predicted_us);
    }
  }
  fit_.note(step, plan, num_halves);
  renew(record, plan);
  if (plan == record.played.plan) record.measured.add(step.step_us);
  if (std::exchange(num_link_shifts_, fit_.num_link_shifts()) == fit_.num_link_shifts()) return;
  if (std::exchange(shifted_at_, totals_.num_steps) + kTuning.links_apart > totals_.num_steps)
    return;
  for (MeasuredRatio& ratio : std::views::join(ratios_)) ratio.weaken(kTuning.guess_weight);
  for (PlanRecord& each : records_) each.weaken();
}

void Planner::note(std::span<const StepReport> reports) {
  const StepReport step = slowest_of(reports);
  const auto plan = plan_of(static_cast<PlanId>(step.plan), *options_.orders);
  if (step.is_valid == 0 || step.rows == 0 || !plan) return;
  const MutexLock lock(mutex_);
  if (++totals_.num_steps % kTuning.ageing == 0)
    for (MeasuredRatio& ratio : std::views::join(ratios_)) ratio.age();
  credit_us_ = std::min(credit_us_ + kTuning.search_share * step.step_us, kTuning.max_credit_us);
  PlanRecord& record =
      record_for({static_cast<Phase>(step.phase), static_cast<int>(step.rows), step.kv_tokens});
  record.note_size(step);
  measure(record, step, *plan);
  totals_.num_trial_steps += trials_.note(record, step) ? 1 : 0;
  if (record.found.candidates.empty()) return;
  if (record.measured.count() >= kTuning.min_measured) decide(record, false);
  // The first decision is logged once it has settled; a forced plan, if it costs time.
  if (record.is_logged || choice_for(record).mode == OverlapChoice::Mode::none) return;
  record.has_log_line |= record.num_steps >= kTuning.steps_until_logged &&
                         (is_automatic(record) || record.cost() > kTuning.logged_cost);
}

Planner::Choice Planner::choose(const Bucket& next) {
  if (next.rows <= 0) return {};
  const MutexLock lock(mutex_);
  PlanRecord& record = record_for(next);
  search_for(record);
  if (trials_.is_likely(next.phase)) record.note_asked();
  const auto trial = is_automatic(record) ? trials_.next(record) : std::nullopt;
  return {trial.value_or(record.played.plan), trial.has_value()};
}

std::optional<Planner::LogLine> Planner::take_log_line(bool with_changes) {
  const MutexLock lock(mutex_);
  const auto record = std::ranges::find_if(records_, [&](const PlanRecord& one) {
    return one.has_log_line && (with_changes || !is_automatic(one));
  });
  if (record == records_.end()) return std::nullopt;
  record->has_log_line = false, record->is_logged = true;
  if (is_automatic(*record)) return LogLine{.text = decision_text(*record, *options_.orders)};
  return LogLine{.text = forced_text(*record, choice_for(*record), *options_.orders),
                 .is_warning = true};
}

PlannerState Planner::state() const {
  PlannerState out;
  std::vector<PlanRecord> records;
  {
    const MutexLock lock(mutex_);
    out = totals_;
    for (const PlanRecord& record : records_)
      if (record.last_used > 0) records.push_back(record);
  }
  for (const PlanRecord& record : records)
    out.decisions.push_back(decision_of(record, *options_.orders));
  std::ranges::sort(out.decisions, {}, &OverlapDecision::bucket);
  return out;
}

}  // namespace hocket
