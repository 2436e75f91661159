#include "compute/overlap/planner.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/check.h"
#include "compute/overlap/planner_record.h"

namespace hocket {
namespace {

using Mode = OverlapChoice::Mode;

constexpr size_t kMostRecords = 64;
constexpr size_t kMostNews = 16;
constexpr int kSlice = 32;  // candidates between two looks at the clock
constexpr double kMostCreditUs = 5000;
constexpr int kShortInterval = 4, kLongInterval = 64;  // steps between searches of a bucket
constexpr double kSameKindMargin = 0.01;               // errors of one kind are much alike
constexpr double kKnownMargin = 0.5;                   // of kMargin, where both kinds were measured
// So many standard errors count for nothing: when plans are compared at leisure, and when one is to
// be dropped at once.
constexpr double kErrors = 0.7, kDropErrors = 2;
constexpr int kCalm = 512;        // steps without a change after which less patience is needed
constexpr int kMostPatience = 5;  // kPatience is doubled so often at most
constexpr int kFew = 3;           // measurements that make a plan known
constexpr int kFresh = 15;        // steps after a change in which one word is enough to drop it
constexpr int kUntold = 16;       // steps until a first decision is worth a line
constexpr int kShadowNotes = 4;   // a proposed shadow run is played by then, or was not
constexpr double kAffordable = 1.3, kAffordableOnce = 2;  // times of what is played
constexpr int kMeasuredFirst = 2;  // without a prior: what was never tried is not adopted

constexpr size_t index_of(PlanKind kind) {
  return static_cast<size_t>(kind);
}
constexpr std::array kKinds = {PlanKind::none, PlanKind::single_batch, PlanKind::two_batch};

// What a plan should take: predicted, and corrected by what was measured of its kind.
struct Expected {
  double us = 0;     // 0: there is none
  double error = 0;  // relative
};

}  // namespace

struct Planner::State {
  explicit State(const Options& given)
      : options(given), fit(given.layers, given.prior), searcher(*given.orders) {
    records.reserve(kMostRecords);
  }

  PlanKind kind(const Plan& plan) const { return kind_of(plan, *options.orders); }
  bool is_automatic() const { return options.choice.mode == Mode::automatic; }
  SearchQuestion question(const Bucket& bucket) const;
  Bucket size_of(const PlannerRecord& record) const;
  PlannerRecord& record_for(const Bucket& bucket);
  Expected expected(const PlannerRecord& record, PlanKind kind, double predicted_us) const;
  RecordTimes times_of(const PlannerRecord& record) const;

  bool wants_search(const PlannerRecord& record) const;
  void search_on(PlannerRecord& record);
  void conclude(PlannerRecord& record);
  bool may_play(const PlannerRecord& record, PlanKind kind) const;
  std::optional<Candidate> challenger(const PlannerRecord& record) const;
  bool beats(const PlannerRecord& record, const Candidate& other, double errors) const;
  void decide(PlannerRecord& record);
  void adopt(PlannerRecord& record, const Candidate& candidate);
  void force(PlannerRecord& record);
  Plan forced_plan(const PlannerRecord& record) const;
  Plan plan_near(const PlannerRecord& record) const;

  void measure(PlannerRecord& record, const StepReport& step, const Plan& plan);
  void drop_if_it_lies(PlannerRecord& record);
  void forget_ratios();
  std::optional<Plan> shadow_for(PlannerRecord& record, Phase phase);
  void note_shadow(PlannerRecord& record, const StepReport& step);
  void tell(PlannerRecord& record);

  Options options;
  FittedTimes fit;
  Searcher searcher;
  mutable std::mutex mutex;  // of all that state() copies
  std::vector<PlannerRecord> records;
  PlannerRecord* searched = nullptr;  // its search is under way
  double credit_us = kMostCreditUs;   // for searching
  uint64_t clock = 0, num_steps = 0, num_shadow_steps = 0, num_searches = 0;
  double search_us = 0;
  uint32_t num_link_shifts = 0;
  struct OfPhase {
    std::array<MeasuredRatio, 3> ratios;  // by PlanKind, of all buckets
    std::array<uint64_t, 3> tried{};
  };
  std::array<OfPhase, kNumPhases> phases;
  struct Shadow {
    PlanId id = PlanId::none;
    Phase phase = Phase::decode;
    int notes_left = 0;        // > 0: it may be played yet
    uint64_t steps_since = 0;  // the last one that was played
    bool missed_here[kNumPhases] = {};
  } shadow;
  std::array<PlannerRecord*, kMostNews> news{};
  size_t num_news = 0;
};

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

// The one of the bucket, made where there is none; of too many, that of longest ago goes.
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

Expected Planner::State::expected(const PlannerRecord& record, PlanKind of, double us) const {
  if (us <= 0) return {};
  const MeasuredRatio& near = phases[static_cast<size_t>(record.border.phase)].ratios[index_of(of)];
  const MeasuredRatio& here = record.ratios[index_of(of)];
  const double otherwise = near.count() >= kFew ? near.value(1) : 1;
  double spread = 0;  // noise is that of the machine, not of a kind
  for (const MeasuredRatio& any : phases[static_cast<size_t>(record.border.phase)].ratios)
    spread = std::max(spread, any.spread());
  return {us * here.value(otherwise), here.error(spread)};
}

RecordTimes Planner::State::times_of(const PlannerRecord& record) const {
  RecordTimes times;
  for (const PlanKind of : kKinds)
    times.expected_us[index_of(of)] =
        expected(record, of, record.found.best[index_of(of)].step_us).us;
  times.plan_us = expected(record, kind(record.plan), record.found.plan_us).us;
  return times;
}

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
  record.searched_ago = 0;
  if (is_automatic())
    decide(record);
  else
    force(record);
  record.is_searched = true;
}

// Without a prior nothing is known of halves until some were played.
bool Planner::State::may_play(const PlannerRecord& record, PlanKind of) const {
  if (record.found.best[index_of(of)].step_us <= 0) return false;
  const OfPhase& phase = phases[static_cast<size_t>(record.border.phase)];
  return of == PlanKind::none || options.prior != nullptr ||
         phase.tried[index_of(of)] >= kMeasuredFirst;
}

// The best that is not what is played.
std::optional<Candidate> Planner::State::challenger(const PlannerRecord& record) const {
  std::optional<Candidate> best;
  double least = 0;
  for (const PlanKind of : kKinds) {
    const Candidate& candidate = record.found.best[index_of(of)];
    if (!may_play(record, of) || candidate.plan == record.plan) continue;
    const double us = expected(record, of, candidate.step_us).us;
    if (best && us >= least) continue;
    best = candidate, least = us;
  }
  return best;
}

// By more than the margin, and than so many standard errors.
bool Planner::State::beats(const PlannerRecord& record, const Candidate& other,
                           double errors) const {
  const PlanKind here = kind(record.plan), there = kind(other.plan);
  const Expected now = expected(record, here, record.found.plan_us);
  const Expected then = expected(record, there, other.step_us);
  if (here == there) return then.us < now.us * (1 - kSameKindMargin);
  const bool both_known = std::min(record.ratios[index_of(here)].count(),
                                   record.ratios[index_of(there)].count()) >= kFew;
  const double margin = both_known ? kMargin * kKnownMargin : kMargin;
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
  ++record.streak;
  if (record.is_searched && record.streak < kPatience << record.patience_shift) return;
  adopt(record, *other);
}

void Planner::State::adopt(PlannerRecord& record, const Candidate& candidate) {
  if (record.is_searched && kind(record.plan) != kind(candidate.plan))
    record.patience_shift = std::min(record.patience_shift + 1, kMostPatience);
  record.plan = candidate.plan;
  record.found.plan_us = candidate.step_us;
  record.measured.clear();
  record.streak = record.calm = 0;
  record.interval = kShortInterval;
  ++record.num_changes;
  tell(record);
}

// What the user asked for.

Plan Planner::State::forced_plan(const PlannerRecord& record) const {
  const OrderTable& orders = *options.orders;
  const Plan best_single = record.found.best[index_of(PlanKind::single_batch)].plan;
  const Candidate& best_two = record.found.best[index_of(PlanKind::two_batch)];
  switch (options.choice.mode) {
    case Mode::single_batch:
      if (best_single != Plan{}) return best_single;
      return {.order = std::max(orders.find("single-batch-combine"), 0)};
    case Mode::two_batch:
      if (best_two.step_us > 0) return best_two.plan;
      return {.order = std::max(orders.find("four-phase"), 0)};
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

// Of the nearest bucket, until the own one was searched.
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

// Measuring.

void Planner::State::measure(PlannerRecord& record, const StepReport& step, const Plan& plan) {
  const Bucket bucket{record.border.phase, static_cast<int>(step.rows), step.kv_tokens};
  const int num_halves = options.orders->at(plan.order).num_halves;
  const auto halves = num_halves == 2 ? halves_of(bucket, plan.share, 1) : std::nullopt;
  OfPhase& phase = phases[static_cast<size_t>(bucket.phase)];
  const size_t of = index_of(kind(plan));
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
  for (OfPhase& phase : phases)
    for (MeasuredRatio& ratio : phase.ratios) ratio.clear();
  for (PlannerRecord& record : records) {
    for (MeasuredRatio& ratio : record.ratios) ratio.clear();
    record.measured.clear();
    record.streak = record.patience_shift = 0;
    record.interval = 1;
  }
}

// A plan that was adopted lately and takes longer than another is expected to: it waits for no
// search.
void Planner::State::drop_if_it_lies(PlannerRecord& record) {
  const PlanKind here = kind(record.plan);
  if (!is_automatic() || !record.is_searched || here == PlanKind::none) return;
  const int seen = record.measured.count();
  if (seen < kFew || seen >= kFresh || record.ratios[index_of(here)].count() < kFew) return;
  const auto other = challenger(record);
  if (!other || kind(other->plan) == here || !beats(record, *other, kDropErrors)) return;
  adopt(record, *other);
}

// Shadow runs.

// The runner-up of another kind, if its turn has come: the best one, first those that are hardly
// known.
std::optional<Plan> Planner::State::shadow_for(PlannerRecord& record, Phase phase) {
  constexpr auto kEvery = static_cast<uint64_t>(1 / kShadowShare);
  if (!is_automatic() || !record.is_searched || shadow.notes_left > 0) return std::nullopt;
  if (shadow.steps_since < kEvery) return std::nullopt;
  const size_t other_phase = 1 - static_cast<size_t>(phase);
  if (std::exchange(shadow.missed_here[static_cast<size_t>(phase)], false) &&
      phases[other_phase].tried != std::array<uint64_t, 3>{})
    return std::nullopt;  // the other phase's turn
  const double now_us = times_of(record).plan_us;
  std::optional<Plan> best;
  double least = 0;
  for (const PlanKind of : kKinds) {
    const Candidate& candidate = record.found.best[index_of(of)];
    if (of == kind(record.plan) || candidate.step_us <= 0) continue;
    const int known = record.ratios[index_of(of)].count();
    const double us = expected(record, of, candidate.step_us).us;
    if (us > now_us * (known < kFew ? kAffordableOnce : kAffordable)) continue;
    const double score = us * (1 + 0.05 * std::min(known, 2 * kFew));
    if (best && score >= least) continue;
    best = candidate.plan, least = score;
  }
  if (!best) return std::nullopt;
  shadow.id = id_of(*best);
  shadow.phase = phase;
  shadow.notes_left = kShadowNotes;
  return best;
}

void Planner::State::note_shadow(PlannerRecord& record, const StepReport& step) {
  ++shadow.steps_since;
  if (shadow.notes_left == 0) return;
  --shadow.notes_left;
  const bool is_it = step.plan == static_cast<uint32_t>(shadow.id) &&
                     step.phase == static_cast<uint8_t>(shadow.phase);
  if (is_it) {
    shadow.notes_left = 0;
    shadow.steps_since = 0;
    ++num_shadow_steps, ++record.num_shadow_steps;
  } else if (shadow.notes_left == 0) {
    shadow.missed_here[static_cast<size_t>(shadow.phase)] = true;
  }
}

void Planner::State::tell(PlannerRecord& record) {
  record.is_told = true;
  const auto end = news.begin() + static_cast<std::ptrdiff_t>(num_news);
  if (num_news < kMostNews && std::find(news.begin(), end, &record) == end)
    news[num_news++] = &record;
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
  records.reserve(kMostRecords), times.reserve(kMostRecords);
  {
    const std::lock_guard lock(s.mutex);
    records.assign(s.records.begin(), s.records.end());
    for (const PlannerRecord& record : s.records) times.push_back(s.times_of(record));
    out.num_steps = s.num_steps, out.num_shadow_steps = s.num_shadow_steps;
    out.num_searches = s.num_searches, out.search_seconds = s.search_us / 1e6;
  }
  for (size_t i = 0; i < records.size(); ++i) {
    const PlannerRecord& record = records[i];
    out.decisions.push_back({.bucket = record.border,
                             .plan = record.plan,
                             .text = decision_text(record, times[i], *s.options.orders),
                             .predicted_us = times[i].plan_us,
                             .measured_us = record.measured.median(),
                             .none_us = times[i].expected_us[0],
                             .lower_bound_us = record.found.lower_bound_us,
                             .three_halves_us = record.found.three_halves_us,
                             .num_steps = record.num_steps,
                             .num_shadow_steps = record.num_shadow_steps,
                             .num_changes = record.num_changes});
  }
  std::ranges::sort(out.decisions, {}, [](const OverlapDecision& d) {
    return std::tuple(d.bucket.phase, d.bucket.rows, d.bucket.kv_tokens);
  });
  return out;
}

}  // namespace hocket
