#include "engine/rank_experts.h"

#include <algorithm>
#include <utility>

#include "cluster/member.h"
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
  // Where another rank than 0 may coordinate, those that --tolerate-ranks asks for are enough with
  // any coordinator.
  const auto are_enough = [num_ranks = runner.placement().first().num_ranks(),
                           tolerated = parts.tolerate_ranks](const RankSet& ranks) {
    return hocket::are_enough(ranks, num_ranks, tolerated, 0);
  };
  return std::make_unique<Rebalance>(
      Rebalance::Options{.rank = rank,
                         .num_counts = static_cast<int>(parts.experts->num_counts()),
                         .num_iterations = parts.rebalance_iterations,
                         .are_enough = are_enough,
                         .num_workers = runner.info().num_workers,
                         .clock = &clock},
      *mover);
}

}  // namespace

Result<std::optional<ExpertMover::Options>> mover_options(const ServerSettings& settings,
                                                          const Runner& runner, int rank,
                                                          ExpertStats* experts) {
  const ParallelSettings& parallel = settings.parallel;
  std::optional<ExpertMover::Options> mover;
  if (experts == nullptr) return mover;
  if (parallel.moves_experts())
    mover = {.model = settings.model,
             .rank = rank,
             .max_retry_time = from_seconds(parallel.lost_rank_wait_s),
             .max_expert_time = std::max(ExpertMover::Options().max_expert_time,
                                         from_seconds(parallel.lost_rank_wait_s))};
  if (parallel.enable_eplb) {
    experts->count_always();
    HOCKET_TRY(mover->rebalance,
               rebalancer_of(parallel, runner.choice(), runner.placement().first()));
  }
  return mover;
}

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
