// The links between ranks that are cut, as their heartbeats say (Heartbeat::unreachable), and for
// how long one keeps a rank out. Datagrams alone may be blocked for good, so each rank is tried
// again some day, after LivenessLimits::apart; that doubles each time, up to max_apart. Owner:
// Membership, whose view and newest heartbeats (by rank) it is given. Thread: the control plane's.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "cluster/liveness_limits.h"
#include "cluster/member.h"

namespace hocket {

class CutLinks {
 public:
  CutLinks(const LivenessLimits& limits, int num_ranks)
      : limits_(limits), apart_(static_cast<size_t>(num_ranks)) {}

  // Returns the members that get no datagrams from `rank`, or from which `rank` gets none.
  static RankSet of(int rank, const ClusterView& view, std::span<const Heartbeat> heartbeats);
  // Returns true while a cut link to a member keeps `rank` out.
  bool keeps_out(int rank, const ClusterView& view, std::span<const Heartbeat> heartbeats,
                 TimePoint now);
  // The process of `rank` is another, which was never kept out.
  void forget(int rank) { apart_[static_cast<size_t>(rank)] = {}; }

 private:
  struct Apart {
    std::optional<TimePoint> since;  // it is kept out by a link; nullopt: it is not
    Duration limit{};                // the longest time for that, the last time
    bool is_logged = false;
  };

  const LivenessLimits limits_;
  std::vector<Apart> apart_;  // by rank
};

}  // namespace hocket
