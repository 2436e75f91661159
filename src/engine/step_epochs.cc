// The epochs of a rank's steps: it joins the others, gives up steps when ranks are lost, and waits
// for them with its requests.
#include <utility>

#include "base/log.h"
#include "engine/step.h"

namespace hocket {

Result<void> RankStep::join_epoch(const RankNetwork::Link& link) {
  HOCKET_TRY(AllToAll* const exchange, runner_->attach({.transport = *link.transport,
                                                        .epoch = link.epoch,
                                                        .present = link.ranks,
                                                        .abort = &network_->abort(),
                                                        .watch = &watch_,
                                                        .stall_timeout = stall_timeout_}));
  overlapped_.between.reset();
  if (Rebalance* const rebalance = experts_.rebalance()) rebalance->restart(link.ranks);
  lockstep_->rebind(*link.transport, *exchange);
  const bool leads = lockstep_->planning_rank() == network_->rank();
  overlap_.rebind(link.transport->caps().exact_arrival, leads);
  overlapped_.timing.decide(leads && runner_->info().overlap_schedule == OverlapSchedule::measured);
  watch_.book_in(ledger());
  joined_ = true;
  // The first messages between two ranks open their connection: better here than in the first
  // request.
  if (!lockstep_->finish_agreement({})) return abort_step({}), Result<void>();
  if (scheduler_.idle()) loss_wait_.end();
  network_->pulse().end();
  return {};
}

void RankStep::leave_epoch() {
  joined_ = false;
  runner_->detach();
  network_->leave();
}

// Returns the error of requests that end because ranks were lost.
Error RankStep::why_lost() const {
  if (const ExpertMover* const mover = experts_.mover())
    if (auto why = mover->last_load_error()) return *std::move(why);
  if (auto why = network_->lost()) return *std::move(why);
  if (lockstep_->lost()) return *lockstep_->lost();
  return error(ErrorCode::lost_rank, "the ranks are still connecting").with_fix("ask again");
}

// Ranks were lost, so the steps under way are undone: their rows are computed again when the ranks
// have met again, with the same bits. Pages in the cache are those of steps that this rank has
// computed to the end, so they stay.
void RankStep::abort_step(std::span<const Batch* const> uncommitted) {
  network_->pulse().end();
  network_->report_lost(lockstep_->lost_peer(), *lockstep_->lost());
  if (network_->meets_again() && loss_wait_.limit() > Duration{}) {
    loss_wait_.begin(clock_.now());
    if (const int waiting = scheduler_.undo_steps(why_lost(), clock_.now()); waiting > 0)
      log::warning("rank {}: {} requests wait for the lost ranks, for at most {:.0f} s",
                   rank_index(), waiting, to_seconds(loss_wait_.limit()));
  } else {
    abort_live(FinishReason::error, why_lost());
    for (const Batch* batch : uncommitted) {
      const auto num_samples = static_cast<size_t>(batch->num_samples());
      const std::vector<SampledToken> none(num_samples, {.failed = true});
      scheduler_.commit(*batch, none, clock_.now());
    }
  }
  report_.set_busy(false);
  publish_idle();
  leave_epoch();
  if (experts_.mover() == nullptr) return;
  experts_.mover()->end_epoch();
  // If no rank may be missing, the next epoch has the places of the start. Otherwise they depend on
  // which ranks it has, and that is not known yet.
  if (tolerate_ranks_ == 0) begin_loading_experts(RankSet::all(network_->num_ranks()));
}

// Every rank knows what the slowest of them loads.
void RankStep::begin_loading_experts(const RankSet& ranks) {
  const Duration time = experts_.mover()->load_for_epoch(ranks);
  if (!loss_wait_.prolong(time) || scheduler_.idle()) return;
  log::warning("rank {}: requests wait up to {:.1f} s longer, while experts are loaded",
               rank_index(), to_seconds(time));
}

bool RankStep::load_experts(const RankSet& ranks) {
  if (experts_.mover() == nullptr) return true;
  begin_loading_experts(ranks);
  experts_.mover()->check_progress();
  return experts_.mover()->has_loaded(ranks);
}

void RankStep::wait_for_ranks() {
  intake();
  if (tier_ != nullptr) {
    if (tier_->has_pending_io()) tier_->process_io(scheduler_);
    tier_->end_prefills();  // nobody waits here for prompts that another service can compute
  }
  if (loss_wait_.is_over(clock_.now()) || (loss_wait_.under_way() && network_->failure())) {
    loss_wait_.end();
    abort_live(FinishReason::error, why_lost());
  }
  send_finished();
  report_.note_alive();
}

}  // namespace hocket
