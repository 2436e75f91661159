#include "engine/lockstep/rank_overlap.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "compute/overlap/plan.h"

namespace hocket {
namespace {

// Keys that a decode row is assumed to read before a step was reported.
constexpr double kFirstKeys = 256;
// The most keys that a step is planned for: a peer's report may name 2^32 keys a row.
constexpr double kMaxKeys = 1LL << 38;
// A typical decode step, for which halves are packed before a step runs.
constexpr Bucket kUsualAnswers{.phase = Phase::decode, .rows = 64, .kv_tokens = 64 * 1024};

}  // namespace

RankOverlap::RankOverlap(const Options& options) : options_(options) {
  rebind(options.exact_arrival, options.rank == 0);
  HOCKET_CHECK(options.prior != nullptr);
  keys_per_row_ = keys_per_row(*options.prior, kUsualAnswers, options.layers);
  if (options.rank > options.tolerate_ranks || options.num_ranks == 1) return;
  planner_.emplace(Planner::Options{.orders = options.settings->orders.get(),
                                    .layers = options.layers,
                                    .prior = options.prior,
                                    .choices = options.settings->choices,
                                    .row_tile = options.row_tile,
                                    .clock = options.clock});
}

void RankOverlap::rebind(bool exact_arrival, bool plans) {
  plans_.store(plans, std::memory_order_relaxed);
  ledger_.emplace(Ledger::Limits{.num_layers = options_.layers.num_layers(),
                                 .num_ranks = options_.num_ranks,
                                 .exact_arrival = exact_arrival,
                                 .kinds = options_.layers.kinds},
                  *options_.clock);
  is_open_ = false;
  report_ = {};
}

void RankOverlap::begin() {
  if (is_open_) return;
  ledger_->begin_step(options_.clock->now());
  is_open_ = true;
}

StepAccount RankOverlap::end() {
  const TimePoint now = options_.clock->now();
  const StepAccount account = ledger_->end_step(now);
  if (options_.profiler != nullptr) options_.profiler->note(options_.rank, *ledger_);
  if (options_.recent != nullptr) options_.recent->note(options_.rank, *ledger_);
  add_up(account);
  ledger_->begin_step(now);
  is_open_ = true;
  return account;
}

void RankOverlap::add_up(const StepAccount& a) {
  if (!a.has_pass) return;
  MutexLock lock(mutex_);
  OverlapStats& s = stats_;
  s.step_seconds += to_seconds(a.took);
  for (size_t op = 0; op < a.compute.size(); ++op)
    s.compute_seconds[op] += to_seconds(a.compute[op]);
  s.other_seconds += to_seconds(a.other);
  s.exposed_seconds += to_seconds(a.exposed);
  s.waiting_seconds += to_seconds(a.waiting);
  s.idle_seconds += to_seconds(a.idle);
  s.hidden_seconds += to_seconds(a.hidden);
  const PlanKind kind = kind_of(a.plan, *options_.settings->orders);
  ++s.steps[static_cast<size_t>(kind)];
  s.trial_steps += a.is_trial ? 1 : 0;
  if (kind == PlanKind::two_batch) s.half_imbalance = a.half_imbalance();
  s.exact_arrival = a.exact_arrival;
  last_plans_.at(index_of(a.bucket.phase)) = a.plan;
}

void RankOverlap::note_reports(const Lockstep& lockstep) {
  // The planner learns from the same numbers, so that it is asked for the bucket that it learns in.
  if (const StepReport all = slowest_of(lockstep.reports()); all.is_valid != 0 && all.rows > 0)
    last_steps_.at(all.phase) = {.rows = static_cast<int>(all.rows),
                                 .keys_per_row = static_cast<double>(all.kv_tokens) / all.rows};
  if (const uint64_t unknown = lockstep.num_unknown_plans(); unknown != num_unknown_) {
    num_unknown_ = unknown;
    MutexLock lock(mutex_);
    stats_.unknown_plans = unknown;
  }
  if (!planner_) return;
  planner_->note(lockstep.reports());
  // A plan that flags force although it costs time is worth a warning; a chosen plan is
  // information. If the level is off, the line is not made, because that allocates.
  if (!plans_.load(std::memory_order_relaxed) || !log::enabled(log::Level::warning)) return;
  if (const auto line = planner_->take_log_line(log::enabled(log::Level::info)))
    log::line(line->is_warning ? log::Level::warning : log::Level::info, "overlap: {}", line->text);
}

void RankOverlap::fill(const Lockstep& lockstep, StepProposal& proposal) {
  if (!lockstep.is_under_way()) {
    proposal.report = std::exchange(report_, {});
    for (const Phase phase : {Phase::prefill, Phase::decode})
      if (planner_)
        proposed_.at(index_of(phase)) = propose(phase, lockstep.expected_rows(phase, proposal));
  }
  proposal.plans = proposed_;
}

// If no prompt is in sight, assumes one as long as the last, because one may still come.
PlanProposal RankOverlap::propose(Phase phase, int rows) {
  if (proposer_) return proposer_(phase);
  const LastStep& last = last_steps_.at(index_of(phase));
  if (rows == 0) rows = last.rows;
  if (rows == 0) return {};
  const double before = phase == Phase::prefill ? 0.5 * (rows + 1) : kFirstKeys;
  const double keys = last.rows > 0 ? last.keys_per_row : before;
  const auto kv_tokens = static_cast<int64_t>(std::min(keys * rows, kMaxKeys));
  const Planner::Choice choice =
      planner_->choose({.phase = phase, .rows = rows, .kv_tokens = kv_tokens});
  return {.id = id_of(choice.plan), .is_trial = choice.is_trial};
}

std::optional<HalfPacking> RankOverlap::packing(const Plan& plan) const {
  if (options_.settings->orders->at(plan.order).num_halves != 2) return std::nullopt;
  return HalfPacking{
      .share = plan.share, .row_tile = options_.row_tile, .keys_per_row = keys_per_row_};
}

OverlapStats RankOverlap::stats() const {
  MutexLock lock(mutex_);
  OverlapStats copy = stats_;
  for (size_t phase = 0; phase < copy.plan.size(); ++phase)
    if (last_plans_[phase])
      copy.plan[phase] = describe(*last_plans_[phase], *options_.settings->orders);
  return copy;
}

std::optional<PlannerState> RankOverlap::planner_state() const {
  if (!planner_ || !plans_.load(std::memory_order_relaxed)) return std::nullopt;
  return planner_->state();
}

}  // namespace hocket
