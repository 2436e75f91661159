// The links between ranks: which of two ranks is lost for one, and which are kept out by one.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "cluster/membership.h"

namespace hocket {

RankSet Membership::cut_links(int rank) const {
  const RankSet& unreachable = slots_[static_cast<size_t>(rank)].heartbeat.unreachable;
  RankSet cut;
  for (int other = 0; other < num_ranks(); ++other)
    if (other != rank && member(other).state == MemberState::member &&
        (unreachable.has(other) ||
         slots_[static_cast<size_t>(other)].heartbeat.unreachable.has(rank)))
      cut.add(other);
  return cut;
}

void Membership::report(const Report& report, TimePoint now) {
  if (report.epoch != view_.epoch || view_.epoch == 0) return;  // all ranks know already
  if (member(report.by).state != MemberState::member) return;   // it is in no epoch
  const std::string& by = name_of(member(report.by).identity);
  if (report.rank < 0) {
    next_epoch();
    view_.why = with_reasons(fmt::format("{} gave up the step: {}", by, report.why));
    log::warning("cluster: epoch={} {}", view_.epoch, view_.why);
    return;
  }
  if (report.rank >= num_ranks() || member(report.rank).state != MemberState::member) return;
  const std::string& its = name_of(member(report.rank).identity);
  const Slot& reporter = slot(report.by);
  const bool is_new = reporter.in_after > slot(report.rank).in_after &&
                      now - reporter.in_since < limits_.good_after;
  const int cut_by = cut_links(report.by).size();
  const int cut_its = cut_links(report.rank).size();
  if (cut_by > cut_its) {
    pause(report.by, now);
    lose(report.by, fmt::format("misses {}, and has {} cut links, where that has {}: {}", its,
                                cut_by, cut_its, report.why));
  } else if (cut_by == cut_its && is_new) {
    pause(report.by, now);
    lose(report.by, fmt::format("misses {}, which was in before it: {}", its, report.why));
  } else {
    pause(report.rank, now);
    lose(report.rank, fmt::format("is missed by {}: {}", by, report.why));
  }
}

void Membership::forget_unreachable(int rank) {
  RankSet gone;
  gone.add(rank);
  for (Slot& other : slots_)
    other.heartbeat.unreachable = other.heartbeat.unreachable.without(gone);
}

// Datagrams alone may be blocked for good, so each rank is tried again some day.
bool Membership::stays_apart(int rank, TimePoint now) {
  Slot& s = slot(rank);
  const int other = cut_links(rank).first();
  if (other < 0) {
    s.apart_since.reset();
    s.apart_limit = {};
    return false;
  }
  if (!s.apart_since) {
    s.apart_since = now;
    s.apart_limit = std::clamp(2 * s.apart_limit, limits_.apart, limits_.max_apart);
    s.is_apart_logged = false;
  }
  const std::string& name = name_of(member(rank).identity);
  const std::string& its = name_of(member(other).identity);
  const Duration apart = now - *s.apart_since;
  if (apart >= s.apart_limit) {
    log::warning("cluster: {} is taken back though the link between it and {} is still cut", name,
                 its);
    s.apart_since.reset();
    return false;
  }
  // News of a link may be a moment old.
  if (apart >= limits_.suspect_after && !std::exchange(s.is_apart_logged, true))
    log::warning(
        "cluster: {} is not taken back until the link between it and {} carries datagrams again, "
        "or for {:g} minutes",
        name, its, to_seconds(s.apart_limit) / 60);
  return true;
}

}  // namespace hocket
