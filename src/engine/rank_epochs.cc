#include "engine/rank_epochs.h"

#include <utility>

namespace hocket {

RankEpochs::RankEpochs(const RankParts& parts, RankNetwork* network, Runner& runner,
                       RankExperts& experts)
    : network_(network),
      runner_(runner),
      experts_(experts),
      stall_timeout_(parts.stall_timeout),
      tolerate_ranks_(parts.tolerate_ranks),
      watch_(network_ != nullptr ? &network_->own_heartbeat() : nullptr) {
  if (network_ == nullptr) return;
  lockstep_.emplace(network_->num_ranks(),
                    Lockstep::Options{.own_heartbeat = &network_->own_heartbeat(),
                                      .max_delayed_passes = parts.max_delayed_passes,
                                      .orders = runner_.overlap().orders.get(),
                                      .others_can_serve = network_->others_can_serve(),
                                      .pauses_others = network_->pauses_others(),
                                      .balance_voter = experts_.rebalance()});
}

Result<void> RankEpochs::join(const RankNetwork::Link& link) {
  HOCKET_TRY(AllToAll* const exchange, runner_.attach({.transport = *link.transport,
                                                       .epoch = link.epoch,
                                                       .present = link.ranks,
                                                       .abort = &network_->abort(),
                                                       .watch = &watch_,
                                                       .stall_timeout = stall_timeout_}));
  if (Rebalance* const rebalance = experts_.rebalance()) rebalance->restart(link.ranks);
  lockstep_->rebind(*link.transport, *exchange);
  joined_ = true;
  return {};
}

void RankEpochs::leave() {
  joined_ = false;
  runner_.detach();
  network_->leave();
}

bool RankEpochs::others_are_idle() const {
  for (int rank = 0; lockstep_ && rank < num_ranks(); ++rank)
    if (rank != this->rank() && lockstep_->loads().of(rank).num_requests > 0) return false;
  return true;
}

AgreedStep RankEpochs::agreed() const {
  return lockstep_ ? lockstep_->agreed() : AgreedStep();
}

std::optional<std::span<const PassSpec>> RankEpochs::module_passes() const {
  return lockstep_ ? std::optional(lockstep_->agreed().module_passes()) : std::nullopt;
}

void RankEpochs::end_steps() {
  if (network_ != nullptr) network_->own_heartbeat().end();
}

void RankEpochs::report_loss() {
  network_->own_heartbeat().end();
  network_->report_lost(lockstep_->lost_peer(), *lockstep_->lost());
}

Error RankEpochs::why_lost() const {
  if (const ExpertMover* const mover = experts_.mover())
    if (auto why = mover->last_load_error()) return *std::move(why);
  if (auto why = network_->lost()) return *std::move(why);
  if (lockstep_->lost()) return *lockstep_->lost();
  return error(ErrorCode::lost_rank, "the ranks are still connecting").with_fix("ask again");
}

// If no rank may be missing, the next epoch has the places of the start. Otherwise they depend on
// which ranks it has, and that is not known yet.
Duration RankEpochs::begin_loading_next() {
  if (experts_.mover() == nullptr) return {};
  experts_.mover()->end_epoch();
  if (tolerate_ranks_ != 0) return {};
  return experts_.mover()->load_for_epoch(RankSet::all(network_->num_ranks()));
}

void RankEpochs::begin_pass(const AgreedStep& step, Ledger& ledger) {
  if (network_ == nullptr) return;
  network_->own_heartbeat().begin(step.pass.step, step.hung_after);
  watch_.book_in(&ledger);
}

void RankEpochs::end_pass() {
  if (network_ == nullptr) return;
  watch_.book_in(nullptr);
  lockstep_->carrier().give_back();
}

}  // namespace hocket
