#include "cluster/epochs.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace hocket {

Epochs::Epochs(Identity coordinator, const Start& start)
    : why_lost_(static_cast<size_t>(coordinator.num_ranks)) {
  HOCKET_CHECK(coordinator.rank >= 0 && coordinator.rank < coordinator.num_ranks);
  view_.epoch = start.last_epoch;
  view_.began = start.began;
  view_.replicas = start.replicas;
  view_.coordinator = coordinator.rank;
  view_.members.resize(why_lost_.size());
  for (int rank = 0; rank < num_ranks(); ++rank) at(rank).identity.rank = rank;
  Member& own = at(coordinator.rank);
  own.state = MemberState::connected;
  own.identity = std::move(coordinator);
}

void Epochs::note_joined(const Identity& identity, bool leaves) {
  Member& m = at(identity.rank);
  if (m.state == MemberState::absent) m.state = MemberState::connected;
  m.identity = identity;
  m.leaves = leaves;
  ++version_;
}

void Epochs::set_leaves(int rank, bool leaves) {
  if (std::exchange(at(rank).leaves, leaves) != leaves) ++version_;
}

void Epochs::set_state(int rank, MemberState state) {
  if (std::exchange(at(rank).state, state) != state) ++version_;
}

void Epochs::set_began() {
  view_.began = true;
  ++version_;
}

void Epochs::set_replicas(int replicas) {
  view_.replicas = replicas;
  ++version_;
}

void Epochs::set_tolerated(int num_ranks) {
  view_.tolerate_ranks = num_ranks;
  ++version_;
}

void Epochs::set_why(std::string why) {
  view_.why = std::move(why);
  ++version_;
}

void Epochs::begin_next() {
  last_known_ = view_.epoch = last_known() + 1;
  ++version_;
}

void Epochs::lose(int rank, MemberState left, const std::string& why) {
  set_state(rank, left);
  if (view_.epoch == 0) return;  // not all ranks were there yet, so no step is open
  begin_next();
  view_.lost = rank;
  std::string& reason = why_lost_[static_cast<size_t>(rank)];
  reason = cut_why(fmt::format("{} {}", name_of(member(rank).identity), why));
  log::error("cluster: lost epoch={} {}", view_.epoch, reason);
  view_.why = with_reasons(reason);
  if (view_.serves()) log_members();
}

void Epochs::take_in(int rank) {
  set_state(rank, MemberState::member);
  why_lost_[static_cast<size_t>(rank)].clear();
  const bool all = first_missing() < 0;
  // The service may have begun though no epoch is known: a coordinator began without some ranks
  // and lost the seat before etcd took its epoch.
  if (last_known() == 0 && !all && !view_.began) return;
  begin_next();
  if (view_.lost == rank) view_.lost = first_missing();
  if (std::string others = with_reasons(""); !others.empty()) view_.why = std::move(others);
  if (all) {
    log::info("cluster: all {} ranks are in epoch {}", num_ranks(), view_.epoch);
  } else {
    log::info("cluster: back epoch={} {}", view_.epoch, name_of(member(rank).identity));
    if (view_.serves()) log_members();
  }
}

int Epochs::first_missing() const {
  for (int rank = 0; rank < num_ranks(); ++rank)
    if (!is_in(rank)) return rank;
  return -1;
}

std::string Epochs::with_reasons(const std::string& why) const {
  std::string text = why;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const std::string& other = why_lost_[static_cast<size_t>(rank)];
    if (!is_in(rank) && !other.empty() && other != why) text += (text.empty() ? "" : "; ") + other;
  }
  return cut_why(text);
}

void Epochs::log_members() const {
  log::warning("cluster: serving epoch={} with {} of {} ranks ({})", view_.epoch,
               view_.present().size(), num_ranks(), view_.present().text());
}

}  // namespace hocket
