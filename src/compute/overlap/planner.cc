#include "compute/overlap/planner.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.h"
#include "compute/overlap/planner_state.h"

namespace hocket {
namespace {

constexpr int kCalm = 512;   // steps without a change after which less patience is needed
constexpr int kUntold = 16;  // steps until the first decision is logged
// The added time at which uncommon orders are assumed, so that none is tried for a small gain.
constexpr double kUncommonMargin = 0.05;

}  // namespace

SearchQuestion Planner::State::question(const Bucket& bucket) const {
  LayerCounts layers = options.layers;
  layers.beside_us = fit.beside_us(bucket);
  return {.model = fit,
          .orders = *options.orders,
          .layers = layers,
          .bucket = bucket,
          .row_tile = options.row_tile,
          .most_parts = options.most_parts};
}

Bucket Planner::State::size_of(const PlannerRecord& record) const {
  return {record.border.phase, std::max(static_cast<int>(std::lround(record.rows)), 1),
          std::llround(record.keys)};
}

// Returns the record of the bucket and makes it where there is none. Of kMostRecords, the one that
// was used longest ago is replaced.
PlannerRecord& Planner::State::record_for(const Bucket& bucket) {
  const Bucket border = border_of(bucket);
  auto found = std::ranges::find(records, border, &PlannerRecord::border);
  if (found == records.end()) {
    if (records.size() < kMostRecords) {
      records.emplace_back();
      found = records.end() - 1;
    } else {
      found = std::ranges::min_element(records, {}, &PlannerRecord::last_used);
      if (searched == &*found) searched = nullptr;
      num_news = static_cast<size_t>(
          std::remove(news.begin(), news.begin() + static_cast<std::ptrdiff_t>(num_news), &*found) -
          news.begin());
      *found = {};
    }
    found->border = border;
    found->rows = bucket.rows, found->keys = static_cast<double>(bucket.kv_tokens);
    found->plan = forced_plan(*found);
  }
  found->last_used = ++clock;
  return *found;
}

// Returns the relative spread of single steps: the largest of all kinds, because the machine causes
// it and not the kind.
double Planner::State::noise(const PlannerRecord& record) const {
  double spread = 0;
  for (const MeasuredRatio& any : phases[static_cast<size_t>(record.border.phase)].ratios)
    spread = std::max(spread, any.spread());
  return spread;
}

Expected Planner::State::expected(const PlannerRecord& record, const Candidate& candidate) const {
  const auto& [plan, us] = candidate;
  if (us <= 0) return {};
  const size_t of = index_of(kind(plan));
  const MeasuredRatio& near = phases[static_cast<size_t>(record.border.phase)].ratios[of];
  const MeasuredRatio& here = record.ratios[of];
  // A kind that was never measured is assumed to deviate from its prediction as the played plan
  // does, because both predictions are made of the same times.
  const double as_played = record.ratios[index_of(kind(record.plan))].value(1);
  const double of_kind = here.value(near.count() >= kFew ? near.value(1) : as_played);
  if (const MeasuredRatio* own = record.ratio_of(plan))
    return {us * own->value(of_kind), own->error(noise(record))};
  return {us * of_kind * (is_common(plan, *options.orders) ? 1 : 1 + kUncommonMargin),
          here.error(noise(record))};
}

Expected Planner::State::expected_now(const PlannerRecord& record) const {
  return expected(record, {record.plan, record.found.plan_us});
}

RecordTimes Planner::State::times_of(const PlannerRecord& record) const {
  RecordTimes times;
  const auto look_at = [&](const Candidate& candidate) {
    double& least = times.expected_us[index_of(kind(candidate.plan))];
    const double us = expected(record, candidate).us;
    if (us > 0 && (least == 0 || us < least)) least = us;
  };
  for (const Candidate& candidate : record.finalists()) look_at(candidate);
  times.plan_us = expected_now(record).us;
  return times;
}

std::vector<Finalist> Planner::State::finalists_of(const PlannerRecord& record) const {
  std::vector<Finalist> out;
  for (const Candidate& candidate : record.finalists()) {
    const MeasuredRatio* own = record.ratio_of(candidate.plan);
    out.push_back({.plan = candidate.plan,
                   .name = describe(candidate.plan, *options.orders),
                   .predicted_us = candidate.step_us,
                   .expected_us = expected(record, candidate).us,
                   .num_measured = own != nullptr ? own->count() : 0});
  }
  std::ranges::sort(out, {}, &Finalist::expected_us);
  return out;
}

// The planner.

Planner::Planner(const Options& options) : state_(std::make_unique<State>(options)) {
  HOCKET_CHECK(options.orders != nullptr && options.clock != nullptr);
}
Planner::~Planner() = default;

void Planner::note(std::span<const StepReport> reports) {
  State& s = *state_;
  const StepReport step = slowest_of(reports);
  const auto plan = plan_of(static_cast<PlanId>(step.plan), *s.options.orders);
  if (step.is_valid == 0 || step.rows == 0 || !plan) return;
  const std::lock_guard lock(s.mutex);
  ++s.num_steps;
  s.credit_us =
      std::min(s.credit_us + kSearchShare * static_cast<double>(step.step_us), kMostCreditUs);
  PlannerRecord& record =
      s.record_for({static_cast<Phase>(step.phase), static_cast<int>(step.rows), step.kv_tokens});
  const double weight = std::max(0.1, 1.0 / static_cast<double>(++record.num_steps));
  record.rows += weight * (step.rows - record.rows);
  record.keys += weight * (step.kv_tokens - record.keys);
  ++record.searched_ago;
  if (++record.calm >= kCalm) {
    record.calm = 0;
    record.patience_shift = std::max(record.patience_shift - 1, 0);
  }
  s.measure(record, step, *plan);
  s.note_shadow(record, step);
  s.drop_if_it_lies(record);
  if (s.is_automatic() && record.is_searched && !record.is_told && record.num_steps >= kUntold)
    s.tell(record);
}

Planner::Choice Planner::choose(const Bucket& next) {
  State& s = *state_;
  if (next.rows <= 0) return {};
  const std::lock_guard lock(s.mutex);
  PlannerRecord& record = s.record_for(next);
  s.search_on(record);
  if (const auto shadow = s.shadow_for(record, next.phase)) return {*shadow, true};
  return {s.plan_near(record), false};
}

std::optional<std::string> Planner::take_news() {
  State& s = *state_;
  if (s.num_news == 0) return std::nullopt;
  const PlannerRecord& record = *s.news[0];
  std::rotate(s.news.begin(), s.news.begin() + 1, s.news.end());
  --s.num_news;
  const RecordTimes times = s.times_of(record);
  if (s.is_automatic()) return decision_text(record, times, *s.options.orders);
  return forced_text(record, times, *s.options.orders, s.options.choice);
}

PlannerState Planner::state() const {
  const State& s = *state_;
  PlannerState out;
  std::vector<PlannerRecord> records;
  std::vector<RecordTimes> times;
  std::vector<std::vector<Finalist>> finalists;
  records.reserve(kMostRecords), times.reserve(kMostRecords), finalists.reserve(kMostRecords);
  {
    const std::lock_guard lock(s.mutex);
    records.assign(s.records.begin(), s.records.end());
    for (const PlannerRecord& record : s.records) {
      times.push_back(s.times_of(record));
      finalists.push_back(s.finalists_of(record));
    }
    out.num_steps = s.num_steps, out.num_shadow_steps = s.num_shadow_steps;
    out.num_trial_steps = s.num_trial_steps;
    out.num_searches = s.num_searches, out.search_seconds = s.search_us / 1e6;
  }
  for (size_t i = 0; i < records.size(); ++i) {
    const PlannerRecord& record = records[i];
    out.decisions.push_back({.bucket = record.border,
                             .plan = record.plan,
                             .name = describe(record.plan, *s.options.orders),
                             .finalists = std::move(finalists[i]),
                             .text = decision_text(record, times[i], *s.options.orders),
                             .predicted_us = times[i].plan_us,
                             .measured_us = record.measured.median(),
                             .none_us = times[i].expected_us[0],
                             .lower_bound_us = record.found.lower_bound_us,
                             .three_halves_us = record.found.three_halves_us,
                             .num_steps = record.num_steps,
                             .num_shadow_steps = record.num_shadow_steps,
                             .num_trial_steps = static_cast<uint64_t>(record.num_trial_steps),
                             .num_changes = record.num_changes});
  }
  std::ranges::sort(out.decisions, {}, [](const OverlapDecision& d) {
    return std::tuple(d.bucket.phase, d.bucket.rows, d.bucket.kv_tokens);
  });
  return out;
}

}  // namespace hocket
