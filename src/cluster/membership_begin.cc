// The begin of a service: when ranks may be missing, and on what the ranks agree before they load.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "cluster/membership.h"

namespace hocket {

// Ranks that load are in from the start of a service, but not in one that others have begun.
void Membership::note_began() {
  if (view_.began) return;
  view_.began = true;
  ++version_;
  set_begin_why({});
  if (tolerate_ranks_ == 0) return;
  bool any = false;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    if (member(rank).state != MemberState::member || slot(rank).heartbeat.ready()) continue;
    member(rank).state = MemberState::connected;
    any = true;
  }
  // The rank that says it may have to load first, so the first epoch does not wait for it.
  const bool are_enough = view_.present().size() >= num_ranks() - tolerate_ranks_;
  if (view_.epoch > 0 ? any : are_enough) next_epoch();
}

// All were ready once, so from now on ranks may be missing.
void Membership::note_begin() {
  if (tolerate_ranks_ == 0 || view_.began || !view_.whole()) return;
  view_.began = std::ranges::all_of(slots_, [](const Slot& s) { return s.heartbeat.ready(); });
  if (!view_.began) return;
  set_begin_why({});  // all are ready, so the reason is out of date
  ++version_;
}

void Membership::set_begin_why(std::string why) {
  if (why == begin_why_) return;
  // Another reason may have taken its place.
  if (!why.empty())
    view_.why = why;
  else if (view_.why == begin_why_)
    view_.why = with_reasons("");
  begin_why_ = std::move(why);
  ++version_;
}

// A rank that has not come, or loads for long, does not keep the others from beginning for ever.
void Membership::begin_without_missing(TimePoint now) {
  if (tolerate_ranks_ == 0 || view_.began) return;
  int num_ready = 0;
  for (int rank = 0; rank < num_ranks(); ++rank)
    num_ready += member(rank).state == MemberState::member && slot(rank).heartbeat.ready() ? 1 : 0;
  if (num_ready < num_ranks() - tolerate_ranks_) {
    enough_since_.reset();
    return set_begin_why({});
  }
  set_begin_why(fmt::format("{} ranks are ready, and begin without the others after {:g} s",
                            num_ready, to_seconds(begin_after_)));
  if (!enough_since_) {
    enough_since_ = now;
    log::info(
        "cluster: {} of {} ranks are ready, and begin without the others after {:g} s "
        "(--rank-wait)",
        num_ready, num_ranks(), to_seconds(begin_after_));
  }
  if (now - *enough_since_ < begin_after_) return;
  const uint32_t epoch = view_.epoch;
  note_began();
  if (view_.epoch == epoch) next_epoch();
  view_.why = fmt::format("{} ranks had been ready for {:g} s, and began without the others",
                          num_ready, to_seconds(begin_after_));
  log::warning("cluster: {} (--rank-wait); those are taken in when they have loaded", view_.why);
  if (view_.serves()) log_members();
}

void Membership::settle_replicas(TimePoint now) {
  if (view_.replicas >= 0) return;
  int num_said = 0, least = kMaxReplicas, of = -1;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const int said = slot(rank).heartbeat.max_replicas;
    if (member(rank).state == MemberState::absent || said < 0) continue;
    ++num_said;
    if (of < 0 || said < least) least = said, of = rank;
  }
  const bool waits = tolerate_ranks_ == 0 || now - started_ < begin_after_;
  if (num_said < num_ranks() - (waits ? 0 : tolerate_ranks_)) return;
  view_.replicas = least;
  ++version_;
  log::info(
      "cluster: each rank gets {} replicas of experts in each layer "
      "(--ep-num-redundant-experts auto), for which {} has memory{}",
      least, name_of(member(of).identity),
      num_said < num_ranks() ? "; not all ranks are there" : "");
}

// Lets ranks be missing once the coordinator has waited long enough for all of them. The epoch
// stays the same, because no rank has entered it yet, or it serves already.
void Membership::end_gathering(TimePoint now) {
  if (view_.tolerate_ranks == tolerate_ranks_ || now < started_ + limits_.gather) return;
  view_.tolerate_ranks = tolerate_ranks_;
  ++version_;
  if (view_.serves() && !view_.whole()) log_members();
}

void Membership::log_members() const {
  log::warning("cluster: serving epoch={} with {} of {} ranks ({})", view_.epoch,
               view_.present().size(), num_ranks(), view_.present().text());
}

}  // namespace hocket
