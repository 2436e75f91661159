#include "engine/rank_experts.h"

#include <utility>

#include "engine/rank_parts.h"

namespace hocket {
namespace {

std::unique_ptr<ExpertMover> make_mover(RankParts& parts, Runner& runner,
                                        const std::function<void()>& wake) {
  if (!parts.mover) return nullptr;
  parts.mover->wake = wake;
  return std::make_unique<ExpertMover>(*std::move(parts.mover), runner, *parts.experts);
}

std::unique_ptr<Rebalance> make_rebalance(const RankParts& parts, const Runner& runner, int rank,
                                          const Clock& clock, ExpertMover* mover) {
  if (mover == nullptr) return nullptr;
  return std::make_unique<Rebalance>(
      Rebalance::Options{.rank = rank,
                         .num_counts = static_cast<int>(parts.experts->num_counts()),
                         .num_iterations = parts.rebalance_iterations,
                         .tolerate_ranks = parts.tolerate_ranks,
                         .num_workers = runner.info().num_workers,
                         .clock = &clock},
      *mover);
}

}  // namespace

RankExperts::RankExperts(RankParts& parts, Runner& runner, int rank, const Clock& clock,
                         const std::function<void()>& wake)
    : stats_(parts.experts),
      mover_(make_mover(parts, runner, wake)),
      rebalance_(make_rebalance(parts, runner, rank, clock, mover_.get())) {}

void RankExperts::note(const Flight& flight) {
  if (stats_ != nullptr) stats_->note(flight.experts);
  if (rebalance_) rebalance_->note(flight.experts);
  if (flight.move != nullptr) rebalance_->moved();
}

}  // namespace hocket
