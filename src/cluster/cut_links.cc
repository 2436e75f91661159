#include "cluster/cut_links.h"

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace hocket {

RankSet CutLinks::of(int rank, const ClusterView& view, std::span<const Heartbeat> heartbeats) {
  const RankSet& unreachable = heartbeats[static_cast<size_t>(rank)].unreachable;
  RankSet cut;
  for (int other = 0; other < std::ssize(view.members); ++other) {
    const auto at = static_cast<size_t>(other);
    if (other != rank && view.members[at].state == MemberState::member &&
        (unreachable.has(other) || heartbeats[at].unreachable.has(rank)))
      cut.add(other);
  }
  return cut;
}

bool CutLinks::keeps_out(int rank, const ClusterView& view, std::span<const Heartbeat> heartbeats,
                         TimePoint now) {
  Apart& apart = apart_[static_cast<size_t>(rank)];
  const int other = of(rank, view, heartbeats).first();
  if (other < 0) {
    apart.since.reset();
    apart.limit = {};
    return false;
  }
  if (!apart.since) {
    apart.since = now;
    apart.limit = std::clamp(2 * apart.limit, limits_.apart, limits_.max_apart);
    apart.is_logged = false;
  }
  const std::string name = name_of(view.members[static_cast<size_t>(rank)].identity);
  const std::string its = name_of(view.members[static_cast<size_t>(other)].identity);
  const Duration time = now - *apart.since;
  if (time >= apart.limit) {
    log::warning("cluster: {} rejoins although its link to {} is still cut", name, its);
    apart.since.reset();
    return false;
  }
  // News of a link may be a moment old.
  if (time >= limits_.suspect_after && !std::exchange(apart.is_logged, true))
    log::warning(
        "cluster: {} is not taken back until the link between it and {} carries datagrams again, "
        "or for {:g} minutes",
        name, its, to_seconds(apart.limit) / 60);
  return true;
}

}  // namespace hocket
