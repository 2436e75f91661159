// Searches, and what the planner decides from their answers.
#include <algorithm>
#include <cmath>
#include <utility>

#include "compute/overlap/planner_state.h"

namespace hocket {
namespace {

constexpr int kSlice = 32;                             // candidates between two looks at the clock
constexpr int kShortInterval = 4, kLongInterval = 64;  // steps between searches of a bucket
constexpr double kSameKindMargin = 0.01;               // errors of one kind are much alike
// Share of kMargin that is enough where both plans were measured.
constexpr double kKnownMargin = 0.5;
// A difference must exceed this number of standard errors: kErrors when plans are compared after a
// search, kDropErrors when a plan is to be dropped at once.
constexpr double kErrors = 1.3, kDropErrors = 2;
constexpr int kMostPatience = 5;  // how often kPatience is doubled at most
constexpr int kFresh = 15;        // steps after a change in which a plan may be dropped at once
// Without a prior: steps that a kind must have been played before it is adopted.
constexpr int kMeasuredFirst = 2;
constexpr int kMostOfKind = 8;  // finalists of one kind at most

using Mode = OverlapChoice::Mode;

}  // namespace

// Searching.

bool Planner::State::wants_search(const PlannerRecord& record) const {
  if (options.prior == nullptr && fit.num_seen(record.border.phase) == 0) return false;
  return !record.is_searched || record.searched_ago >= record.interval;
}

void Planner::State::search_on(PlannerRecord& record) {
  if (searched == nullptr && wants_search(record)) {
    searched = &record;
    searcher.begin(question(size_of(record)));
  }
  while (searched != nullptr && credit_us > 0) {
    const TimePoint begin = options.clock->now();
    const bool is_done = searcher.advance(kSlice);
    if (is_done) conclude(*std::exchange(searched, nullptr));
    const double took_us = to_us(options.clock->now() - begin);
    credit_us -= took_us, search_us += took_us;
  }
}

void Planner::State::conclude(PlannerRecord& record) {
  const SearchAnswer& answer = searcher.answer();
  ++num_searches;
  PlannerRecord::Found& found = record.found;
  found.best = {answer.none, answer.best_single, answer.best_two};
  found.lower_bound_us = answer.lower_bound_us;
  found.three_halves_us = answer.three_halves_us;
  found.reason = answer.reason;
  found.plan_us = predict_step_us(question(size_of(record)), record.plan);
  name_finalists(record, answer);
  record.searched_ago = 0;
  if (is_automatic())
    decide(record);
  else
    force(record);
  record.is_searched = true;
}

// Names the finalists: the best of each kind, uncommon ones that were measured, then common ones by
// their expected time. Each kind has at most kMostOfKind, because many orders of two halves hardly
// differ.
void Planner::State::name_finalists(PlannerRecord& record, const SearchAnswer& answer) {
  PlannerRecord::Found& found = record.found;
  found.num_finalists = 0;
  const auto has = [&](const Plan& plan) {
    const auto named = record.finalists();
    return std::ranges::find(named, plan, &Candidate::plan) != named.end();
  };
  for (const Candidate& best : found.best)
    if (best.step_us > 0) found.finalists[found.num_finalists++] = best;
  for (const PlayedPlan& played : record.played)
    if (played.ratio.count() >= kFew && !is_common(played.plan, *options.orders) &&
        !has(played.plan) && found.num_finalists < PlannerRecord::Found::kMostFinalists / 2)
      found.finalists[found.num_finalists++] = {
          played.plan, predict_step_us(question(size_of(record)), played.plan)};
  const auto num_of = [&](PlanKind of) {
    return std::ranges::count(record.finalists(), of,
                              [&](const Candidate& named) { return kind(named.plan); });
  };
  while (found.num_finalists < PlannerRecord::Found::kMostFinalists) {
    const Candidate* next = nullptr;
    double least = 0;
    for (const Candidate& candidate : answer.common) {
      if (has(candidate.plan) || num_of(kind(candidate.plan)) >= kMostOfKind) continue;
      const double us = expected(record, candidate).us;
      if (next == nullptr || us < least) next = &candidate, least = us;
    }
    if (next == nullptr) return;
    found.finalists[found.num_finalists++] = *next;
  }
}

// True if plans of this kind may be adopted. Without a prior, a kind must have been played before,
// because nothing else is known of halves.
bool Planner::State::may_play(const PlannerRecord& record, PlanKind of) const {
  const OfPhase& phase = phases[static_cast<size_t>(record.border.phase)];
  return of == PlanKind::none || options.prior != nullptr ||
         phase.tried[index_of(of)] >= kMeasuredFirst;
}

// Returns the finalist that is expected to be fastest, the played plan excluded.
std::optional<Candidate> Planner::State::challenger(const PlannerRecord& record) const {
  std::optional<Candidate> best;
  double least = 0;
  for (const Candidate& candidate : record.finalists()) {
    if (!may_play(record, kind(candidate.plan)) || candidate.plan == record.plan) continue;
    const double us = expected(record, candidate).us;
    if (best && us >= least) continue;
    best = candidate, least = us;
  }
  return best;
}

// True if `other` is expected to be faster by more than the margin and `errors` standard errors;
// the latter do not count between plans of one kind that are hardly measured.
bool Planner::State::beats(const PlannerRecord& record, const Candidate& other,
                           double errors) const {
  const Expected now = expected_now(record), then = expected(record, other);
  const auto is_known = [&](const Plan& plan) {
    const MeasuredRatio* ratio = record.ratio_of(plan);
    return ratio != nullptr && ratio->count() >= kFew;
  };
  const bool both_known = is_known(record.plan) && is_known(other.plan);
  const bool are_alike = kind(record.plan) == kind(other.plan);
  if (are_alike && !both_known) return then.us < now.us * (1 - kSameKindMargin);
  const double margin = are_alike ? kSameKindMargin : both_known ? kMargin * kKnownMargin : kMargin;
  return then.us < now.us * (1 - margin - errors * std::hypot(now.error, then.error));
}

void Planner::State::decide(PlannerRecord& record) {
  const auto other = challenger(record);
  if (!other || !beats(record, *other, kErrors)) {
    record.streak = 0;
    record.interval = std::min(std::max(2 * record.interval, kShortInterval), kLongInterval);
    return;
  }
  record.interval = kShortInterval;
  const double gain = 1 - expected(record, *other).us / expected_now(record).us;
  record.streak += 1 + static_cast<int>(gain / kMargin);  // a large gain needs less patience
  if (record.is_searched && record.streak < kPatience << record.patience_shift) return;
  adopt(record, *other);
}

void Planner::State::adopt(PlannerRecord& record, const Candidate& candidate) {
  // A change after trials follows from new measurements, so it does not increase the patience.
  const bool is_news =
      std::exchange(record.trials_at_change, record.num_trial_steps) != record.num_trial_steps;
  if (record.is_searched && !is_news)
    record.patience_shift = std::min(record.patience_shift + 1, kMostPatience);
  record.plan = candidate.plan;
  record.found.plan_us = candidate.step_us;
  record.measured.clear();
  record.streak = record.calm = 0;
  record.interval = kShortInterval;
  ++record.num_changes;
  tell(record);
}

// Drops a plan that was adopted lately and takes longer than another one is expected to, without
// waiting for the next search.
void Planner::State::drop_if_it_lies(PlannerRecord& record) {
  const PlanKind here = kind(record.plan);
  if (!is_automatic() || !record.is_searched || here == PlanKind::none) return;
  const int seen = record.measured.count();
  if (seen < kFew || seen >= kFresh || record.ratios[index_of(here)].count() < kFew) return;
  const auto other = challenger(record);
  if (!other || !beats(record, *other, kDropErrors)) return;
  adopt(record, *other);
}

// The plan that the user forces.

Plan Planner::State::forced_plan(const PlannerRecord& record) const {
  const OrderTable& orders = *options.orders;
  const auto best_of = [&](PlanKind of, const char* otherwise) -> Plan {
    const Candidate* best = nullptr;
    for (const Candidate& candidate : record.finalists()) {
      if (kind(candidate.plan) != of) continue;
      if (best == nullptr || expected(record, candidate).us < expected(record, *best).us)
        best = &candidate;
    }
    return best != nullptr ? best->plan : Plan{.order = std::max(orders.find(otherwise), 0)};
  };
  switch (options.choice.mode) {
    case Mode::single_batch:
      return best_of(PlanKind::single_batch, "single-batch-combine");
    case Mode::two_batch:
      return best_of(PlanKind::two_batch, "four-phase");
    case Mode::order:
      return {.order = options.choice.order};
    default:
      return {};
  }
}

void Planner::State::force(PlannerRecord& record) {
  const Plan plan = forced_plan(record);
  const double us = predict_step_us(question(size_of(record)), plan);
  const bool is_better = us < record.found.plan_us * (1 - kSameKindMargin);
  if (!record.is_searched || (is_better && plan != record.plan)) {
    record.plan = plan;
    record.found.plan_us = us;
    record.measured.clear();
  }
  record.interval = kLongInterval;
  if (options.choice.mode == Mode::none || record.is_told) return;
  const RecordTimes times = times_of(record);
  double best_us = times.expected_us[0];
  for (const double other : times.expected_us)
    if (other > 0) best_us = std::min(best_us, other);
  if (times.plan_us > best_us * (1 + kMargin)) tell(record);
}

// Returns the plan of the bucket; until it was searched, that of the nearest bucket within an
// octave of rows, else `none`.
Plan Planner::State::plan_near(const PlannerRecord& record) const {
  if (record.is_searched || !is_automatic()) return record.plan;
  const PlannerRecord* near = nullptr;
  const auto distance = [&](const PlannerRecord& other) {
    return std::abs(std::log2(other.border.rows) - std::log2(record.border.rows));
  };
  for (const PlannerRecord& other : records) {
    if (!other.is_searched || other.border.phase != record.border.phase) continue;
    if (near == nullptr || distance(other) < distance(*near)) near = &other;
  }
  return near != nullptr && distance(*near) <= 1 ? near->plan : Plan{};
}

}  // namespace hocket
