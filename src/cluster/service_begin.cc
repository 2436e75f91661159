#include "cluster/service_begin.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace hocket {

void ServiceBegin::note_began(Epochs& epochs, std::span<const Heartbeat> heartbeats) {
  if (epochs.view().began) return;
  epochs.set_began();
  set_why(epochs, {});
  if (options_.tolerate_ranks == 0) return;
  bool any = false;
  for (int rank = 0; rank < epochs.num_ranks(); ++rank) {
    if (!epochs.is_in(rank) || heartbeats[static_cast<size_t>(rank)].ready()) continue;
    epochs.set_state(rank, MemberState::connected);
    any = true;
  }
  // The rank that says it may have to load first, so the first epoch does not wait for it.
  if (epochs.view().epoch > 0 ? any : may_serve(epochs, epochs.view().present()))
    epochs.begin_next();
}

// All were ready once, so from now on ranks may be missing.
void ServiceBegin::note_ready(Epochs& epochs, std::span<const Heartbeat> heartbeats) {
  if (options_.tolerate_ranks == 0 || epochs.view().began || !epochs.view().whole()) return;
  if (!std::ranges::all_of(heartbeats,
                           [](const Heartbeat& heartbeat) { return heartbeat.ready(); }))
    return;
  epochs.set_began();
  set_why(epochs, {});  // all are ready, so the reason is out of date
}

// The view tolerates no missing rank before the coordinator has waited for all.
bool ServiceBegin::may_serve(const Epochs& epochs, const RankSet& ranks) const {
  return are_enough(ranks, epochs.num_ranks(), options_.tolerate_ranks, epochs.view().coordinator);
}

void ServiceBegin::set_why(Epochs& epochs, std::string why) {
  if (why == why_) return;
  // Another reason may have taken its place.
  if (!why.empty())
    epochs.set_why(why);
  else if (epochs.view().why == why_)
    epochs.set_why(epochs.with_reasons(""));
  why_ = std::move(why);
}

// A rank that has not come, or loads for long, does not keep the others from beginning for ever.
void ServiceBegin::begin_without_missing(Epochs& epochs, std::span<const Heartbeat> heartbeats,
                                         TimePoint now) {
  if (options_.tolerate_ranks == 0 || epochs.view().began) return;
  RankSet ready;
  for (int rank = 0; rank < epochs.num_ranks(); ++rank)
    if (epochs.is_in(rank) && heartbeats[static_cast<size_t>(rank)].ready()) ready.add(rank);
  const int num_ready = ready.size();
  if (!may_serve(epochs, ready)) {
    enough_since_.reset();
    return set_why(epochs, {});
  }
  const double wait = to_seconds(options_.begin_after);
  set_why(epochs, fmt::format("{} ranks are ready, and begin without the others after {:g} s",
                              num_ready, wait));
  if (!enough_since_) {
    enough_since_ = now;
    log::info(
        "cluster: {} of {} ranks are ready, and begin without the others after {:g} s "
        "(--rank-wait)",
        num_ready, epochs.num_ranks(), wait);
  }
  if (now - *enough_since_ < options_.begin_after) return;
  const uint32_t epoch = epochs.view().epoch;
  note_began(epochs, heartbeats);
  if (epochs.view().epoch == epoch) epochs.begin_next();
  epochs.set_why(fmt::format("{} ranks had been ready for {:g} s, and began without the others",
                             num_ready, wait));
  log::warning("cluster: {} (--rank-wait); those join when they have loaded", epochs.view().why);
  if (epochs.view().serves()) epochs.log_members();
}

void ServiceBegin::settle_replicas(Epochs& epochs, std::span<const Heartbeat> heartbeats,
                                   TimePoint now) const {
  if (epochs.view().replicas >= 0) return;
  int num_said = 0, least = kMaxReplicas, of = -1;
  for (int rank = 0; rank < epochs.num_ranks(); ++rank) {
    const int said = heartbeats[static_cast<size_t>(rank)].max_replicas;
    if (epochs.member(rank).state == MemberState::absent || said < 0) continue;
    ++num_said;
    if (of < 0 || said < least) least = said, of = rank;
  }
  const bool waits = options_.tolerate_ranks == 0 || now - started_ < options_.begin_after;
  if (num_said < epochs.num_ranks() - (waits ? 0 : options_.tolerate_ranks)) return;
  epochs.set_replicas(least);
  log::info(
      "cluster: each rank gets {} replicas of experts in each layer "
      "(--ep-num-redundant-experts auto), for which {} has memory{}",
      least, name_of(epochs.member(of).identity),
      num_said < epochs.num_ranks() ? "; not all ranks are there" : "");
}

void ServiceBegin::end_gathering(Epochs& epochs, TimePoint now) const {
  const ClusterView& view = epochs.view();
  if (view.tolerate_ranks == options_.tolerate_ranks || now < started_ + options_.gather) return;
  epochs.set_tolerated(options_.tolerate_ranks);
  if (view.serves() && !view.whole()) epochs.log_members();
}

TimePoint ServiceBegin::next_deadline(const Epochs& epochs) const {
  return epochs.view().tolerate_ranks == options_.tolerate_ranks ? TimePoint::max()
                                                                 : started_ + options_.gather;
}

}  // namespace hocket
