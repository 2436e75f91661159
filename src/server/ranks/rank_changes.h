// Decides which ranks leave a running service, remembers those that were told to leave, and chooses
// the rank that a process joins as. Thread: any.
#pragma once

#include <string>
#include <vector>

#include "base/mutex.h"
#include "cluster/control_plane.h"
#include "cluster/leave_check.h"
#include "server/ranks/scale_ranks.h"

namespace hocket {

class RankChanges {
 public:
  // Borrows the control plane.
  RankChanges(ControlPlane& cluster, EligibleCoordinators coordinators);

  // Returns invalid_request, with the reason, if the others could not serve on without these ranks
  // and those that leave already.
  Result<void> may_leave(const RankSet& leaving) const;
  // The rank that decides which ranks leave.
  int coordinator() const { return cluster_.view().coordinator; }
  // Decides which ranks leave, unless the coordinator has decided already, and notes them. If
  // `wanted` says how many stay, these are the coordinator and the lowest ranks. Errors: lost_rank,
  // if this rank does not coordinate; invalid_request, if this process runs several ranks, if a
  // named rank leaves already, if no more than `keep` ranks stay, or if the others could not serve
  // on without these ranks and those that leave already.
  Result<RankSet> decide_leaving(const ScaleRanks& wanted);
  // Notes that these ranks were told to leave; if this rank is among them, its heartbeats say so.
  void note_leaving(const RankSet& leaving);
  // Returns the rank for a process that joins: of the ranks without a process, the one that was
  // offered least recently. Errors: invalid_request, if there is none, if this rank leaves, or if
  // the ranks of a host are started together.
  Result<int> offer_rank();
  // Returns the ranks of this host, which one process started and which end together.
  RankSet own_host() const;

 private:
  int rank() const { return cluster_.self().rank; }
  ClusterView view_with_leaving() const;
  Result<RankSet> ranks_to_leave(const ScaleRanks& wanted) const;

  // A process that was told to leave, and by when its heartbeats say so.
  struct LeavingProcess {
    std::string boot_id;
    TimePoint until{};
  };
  ControlPlane& cluster_;
  const EligibleCoordinators coordinators_;
  Mutex decide_mutex_;  // held while decide_leaving() decides
  mutable Mutex mutex_;
  std::vector<LeavingProcess> leaving_ HOCKET_GUARDED_BY(mutex_);  // by rank
  std::vector<TimePoint> offered_at_ HOCKET_GUARDED_BY(mutex_);  // by rank: to a process that joins
};

}  // namespace hocket
