#include "engine/balance/rebalance.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace hocket {
namespace {

constexpr int kMaxDoublings = 6;
constexpr int kDecider = 0;  // the rank whose verdict counts

// Votes have the upper half of a count as a float: three digits.
uint16_t shortened(uint64_t count) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(count)) >> 16);
}
uint64_t count_of(uint16_t shortened) {
  const auto count = std::bit_cast<float>(uint32_t{shortened} << 16);
  constexpr float kMax = 1e15f;
  return count > 0 ? static_cast<uint64_t>(std::min(count, kMax)) : 0;
}

}  // namespace

Rebalance::Rebalance(const Options& options, ExpertMover& mover)
    : options_(options),
      mover_(mover),
      since_(options.clock->now()),
      mine_(static_cast<size_t>(options.num_counts)),
      gathered_(static_cast<size_t>(options.num_counts)),
      sent_(static_cast<size_t>(options.num_counts)) {}

void Rebalance::restart(const RankSet& present) {
  present_ = present;
  leaving_ = {};
  others_are_ready_ = false;
  check_ = 0;
  num_given_up_ = 0;
  has_move_ = false;
  steps_ = {};
  start_over(false);
}

void Rebalance::start_over(bool gave_up) {
  num_given_up_ = gave_up ? std::min(num_given_up_ + 1, kMaxDoublings) : 0;
  phase_ = Phase::counting;
  benefit_.reset();
  num_changed_ = 0;
  num_steps_ = num_reports_ = 0;
  experts_us_ = 0;
  since_ = options_.clock->now();
  std::ranges::fill(mine_, 0);
}

// Layers that have not changed stay as they are, also one that no step has had yet.
// Ranks that leave do so then; the others load what is missing afterwards.
void Rebalance::give_up() {
  has_move_ = false;
  mover_.drop();
  start_over(true);
  others_are_ready_ = leaving_.size() > 0;
}

// Votes of ranks that are absent are not theirs.
bool Rebalance::all_of(std::span<const BalanceVote> votes, const auto& predicate) const {
  for (size_t rank = 0; rank < votes.size(); ++rank)
    if ((!present_ || present_->has(static_cast<int>(rank))) && !predicate(votes[rank]))
      return false;
  return true;
}

// Gives up what moves by load, so that the next epoch's places come first.
void Rebalance::begin_leave(const RankSet& leaving) {
  has_move_ = false;
  mover_.drop();
  start_over(false);
  leaving_ = leaving;
  others_are_ready_ = false;
  ++check_;
  mover_.plan_for(present_->without(leaving));
  phase_ = Phase::planning;
}

void Rebalance::prepare_leave(bool agree, uint32_t changes) {
  if (!agree || changes == 0) {
    start_over(false);
    others_are_ready_ = true;
    return;
  }
  log::info("rank {}: the ranks {} leave: {} experts move to the others, in {} layers",
            options_.rank, leaving_.text(), mover_.planned()->num_moves,
            mover_.planned()->layers.size());
  mover_.load();
  num_changed_ = 0;
  phase_ = Phase::moving;
}

void Rebalance::note(const ExpertPass& pass) {
  if (pass.num_tokens == 0 || options_.num_iterations == 0) return;
  HOCKET_CHECK(pass.counts.size() == mine_.size());
  for (size_t i = 0; i < mine_.size(); ++i) mine_[i] += pass.counts[i];
}

LayerMove* Rebalance::take_move() {
  return std::exchange(has_move_, false) ? &mover_.next() : nullptr;
}

BalanceVote Rebalance::vote() {
  BalanceVote vote{.check = check_, .phase = static_cast<uint8_t>(phase_)};
  if (phase_ == Phase::gathering) {
    const size_t count = std::min(vote.counts.size(), sent_.size() - next_count_);
    std::ranges::copy(std::span(sent_).subspan(next_count_, count), vote.counts.begin());
  }
  if (phase_ == Phase::planning) {
    // A thread whose files hang plans nothing, so ranks that leave do not wait for its plan.
    if (leaving_.size() > 0 && mover_.check_files()) {
      vote.flags = planned;
      return vote;
    }
    if (const ExpertChanges* const changes = mover_.planned()) {
      vote.flags = planned;
      vote.changes = changes->fingerprint();
      if (leaving_.size() > 0) return vote;
      if (!benefit_) benefit_ = benefit_of(*changes);
      if (benefit_->gain > benefit_->cost) vote.flags |= is_worth_it;
    }
  }
  if (phase_ == Phase::moving) {
    vote.num_loaded = static_cast<uint16_t>(mover_.num_loaded());
    if (mover_.check_files() || mover_.failed()) vote.flags |= failed;
  }
  return vote;
}

void Rebalance::agreed(std::span<const BalanceVote> votes, std::span<const StepReport> reports,
                       const Agreement& agreement) {
  if (present_ && agreement.leaving.size() > 0 && agreement.leaving != leaving_ &&
      options_.are_enough && options_.are_enough(present_->without(agreement.leaving)))
    return begin_leave(agreement.leaving);
  is_smaller_ = present_ && present_->size() < std::ssize(votes);
  if (agreement.computes) {
    ++num_steps_;
    if (std::ranges::any_of(reports, [](const StepReport& one) { return one.is_valid != 0; })) {
      const StepReport slowest = slowest_of(reports);
      experts_us_ += slowest.compute(Op::experts);
      ++num_reports_;
      if (const auto step = steps_.note(slowest, phase_ == Phase::moving)) mover_.note_step(*step);
    }
  }
  const auto same = [&](const BalanceVote& vote) {
    return vote.check == check_ && vote.phase == static_cast<uint8_t>(phase_);
  };
  if (!all_of(votes, same)) return give_up();
  switch (phase_) {
    case Phase::counting:
      return count();
    case Phase::gathering:
      return gather(votes);
    case Phase::planning:
      return decide(votes);
    case Phase::moving:
      return follow_moves(votes);
  }
}

void Rebalance::count() {
  if (options_.num_iterations == 0 || is_smaller_ || leaving_.size() > 0) return;
  if (num_steps_ < options_.num_iterations << num_given_up_) return;
  ++check_;
  std::ranges::transform(mine_, sent_.begin(), shortened);
  std::ranges::fill(gathered_, 0);
  gathered_steps_ = num_steps_;
  gathered_experts_us_ = num_reports_ > 0 ? experts_us_ / static_cast<double>(num_reports_) : 0;
  gathered_seconds_ = to_seconds(options_.clock->now() - since_);
  const int given_up = num_given_up_;
  start_over(false);
  num_given_up_ = given_up;
  next_count_ = 0;
  phase_ = Phase::gathering;
}

void Rebalance::gather(std::span<const BalanceVote> votes) {
  const size_t count = std::min(votes[0].counts.size(), gathered_.size() - next_count_);
  for (const BalanceVote& vote : votes)
    for (size_t i = 0; i < count; ++i) gathered_[next_count_ + i] += count_of(vote.counts.at(i));
  next_count_ += count;
  if (next_count_ < gathered_.size()) return;
  mover_.plan(gathered_, static_cast<uint64_t>(gathered_steps_));
  phase_ = Phase::planning;
}

// Ranks of one release find the same changes; if they do not, no expert moves.
void Rebalance::decide(std::span<const BalanceVote> votes) {
  const auto has_planned = [](const BalanceVote& vote) { return (vote.flags & planned) != 0; };
  if (!all_of(votes, has_planned)) return;
  const uint32_t changes = votes[static_cast<size_t>(options_.rank)].changes;
  const bool agree = all_of(votes, [&](const BalanceVote& v) { return v.changes == changes; });
  if (!agree && leaving_.size() == 0)
    log::warning("rank {}: the ranks computed different placements, so no expert moves",
                 options_.rank);
  if (leaving_.size() > 0) return prepare_leave(agree, changes);
  const bool moves = agree && changes != 0 && (votes[kDecider].flags & is_worth_it) != 0;
  const ExpertChanges& mine = *mover_.planned();
  mover_.note_balance_check(mine, benefit_->gain, benefit_->cost, moves);
  if (!moves) return start_over(!agree);
  if (options_.rank == kDecider)
    log::info(
        "changed: {} experts move, in {} layers: the busiest rank has {:.2f} instead of {:.2f} "
        "times the mean work; {:.3g} s are saved in {:.0f} s, for {:.3g} s",
        mine.num_moves, mine.layers.size(), 1 / mine.balancedness_after,
        1 / mine.balancedness_before, benefit_->gain, to_seconds(kHorizon), benefit_->cost);
  mover_.load();
  num_changed_ = 0;
  phase_ = Phase::moving;
}

void Rebalance::follow_moves(std::span<const BalanceVote> votes) {
  const auto has_failed = [](const BalanceVote& vote) { return (vote.flags & failed) != 0; };
  if (!all_of(votes, [&](const BalanceVote& vote) { return !has_failed(vote); })) return give_up();
  const auto is_ahead = [&](const BalanceVote& v) { return v.num_loaded > num_changed_; };
  if (!all_of(votes, is_ahead)) return;
  HOCKET_CHECK(!has_move_);
  has_move_ = true;
  ++num_changed_;
  if (num_changed_ < std::ssize(mover_.planned()->layers)) return;
  if (options_.rank == kDecider || leaving_.size() > 0)
    log::info("experts of {} layers have moved, in {:.2f} s and {} steps", num_changed_,
              to_seconds(options_.clock->now() - since_), num_steps_);
  start_over(false);
  others_are_ready_ = leaving_.size() > 0;
}

// Compares the time saved in steps like those since the last check with the time of the workers
// that loading takes away, on the rank that loads most.
Rebalance::MoveBenefit Rebalance::benefit_of(const ExpertChanges& changes) const {
  const double saved_us = gathered_experts_us_ * changes.saved_share();
  int64_t max_moves = 0;
  for (const LayerChange& layer : changes.layers) max_moves += layer.max_moves;
  return {.gain = saved_us / 1e6 * static_cast<double>(gathered_steps_) * to_seconds(kHorizon) /
                  std::max(gathered_seconds_, 1e-3),
          .cost = static_cast<double>(max_moves * mover_.expert_bytes()) *
                  mover_.seconds_per_byte() / options_.num_workers};
}

}  // namespace hocket
