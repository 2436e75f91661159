#include "server/ranks/rank_changes.h"

namespace hocket {
namespace {

// Within this time the heartbeat of a rank that was told to leave is in the view.
constexpr Duration kBeatsArrive = std::chrono::seconds(5);

}  // namespace

RankChanges::RankChanges(ControlPlane& cluster, EligibleCoordinators coordinators)
    : cluster_(cluster),
      coordinators_(coordinators),
      leaving_(static_cast<size_t>(cluster.self().num_ranks)),
      offered_at_(leaving_.size()) {}

// A rank that was told to leave says so in its next heartbeat; until then the record of this rank
// is newer.
ClusterView RankChanges::view_with_leaving() const {
  ClusterView view = cluster_.view();
  const TimePoint now = RealClock().now();
  MutexLock lock(mutex_);
  for (size_t rank = 0; rank < view.members.size(); ++rank)
    if (now < leaving_[rank].until && leaving_[rank].boot_id == view.members[rank].identity.boot_id)
      view.members[rank].leaves = true;
  return view;
}

void RankChanges::note_leaving(const RankSet& leaving) {
  const ClusterView view = cluster_.view();
  const TimePoint until = RealClock().now() + kBeatsArrive;
  if (leaving.has(rank())) cluster_.own_heartbeat().leave();
  MutexLock lock(mutex_);
  for (size_t rank = 0; rank < view.members.size(); ++rank)
    if (leaving.has(static_cast<int>(rank)))
      leaving_[rank] = {.boot_id = view.members[rank].identity.boot_id, .until = until};
}

Result<RankSet> RankChanges::ranks_to_leave(const ScaleRanks& wanted) const {
  const ClusterView view = view_with_leaving();
  const RankSet staying = view.staying();
  if (!wanted.keep) {
    const RankSet present = view.present();
    // The named ranks that are present, but do not stay.
    const RankSet already = wanted.leave.without(staying).without(wanted.leave.without(present));
    if (already.size() == 0) return wanted.leave;
    return fail(error(ErrorCode::invalid_request, "the ranks {} leave already", already.text())
                    .with_fix(fmt::format("leave out the ranks {}", already.text()))
                    .with_param("leave"));
  }
  if (*wanted.keep >= staying.size())
    return fail(error(ErrorCode::invalid_request, "keep is {}, and {} ranks stay", *wanted.keep,
                      staying.size())
                    .with_fix("keep fewer ranks; to add one, start its process")
                    .with_param("keep"));
  RankSet leave;
  for (int rank = RankSet::kMaxRank; staying.size() - leave.size() > *wanted.keep; --rank)
    if (staying.has(rank) && rank != view.coordinator) leave.add(rank);
  return leave;
}

Result<void> RankChanges::may_leave(const RankSet& leaving) const {
  return hocket::may_leave(view_with_leaving(), leaving, coordinators_);
}

// Requests come on several threads. One decision waits for the other, so that two that are allowed
// each alone do not add up to too many.
Result<RankSet> RankChanges::decide_leaving(const ScaleRanks& wanted) {
  if (wanted.is_decided) {
    note_leaving(wanted.leave);
    return wanted.leave;
  }
  if (coordinator() != rank())
    return fail(error(ErrorCode::lost_rank, "another rank coordinates the others now")
                    .with_fix("ask again"));
  if (own_host().size() > 1)
    return fail(error(ErrorCode::invalid_request,
                      "one process runs several ranks of this host, and they end together")
                    .with_fix("send SIGTERM to the process that started them")
                    .with_param(wanted.field()));
  const MutexLock lock(decide_mutex_);
  HOCKET_TRY(const RankSet leaving, ranks_to_leave(wanted));
  if (auto goes = may_leave(leaving); !goes)
    return fail(std::move(goes.error()).with_param(wanted.field()));
  note_leaving(leaving);
  return leaving;
}

// Processes that ask one after the other get different ranks, though none of them has joined yet.
Result<int> RankChanges::offer_rank() {
  if (own_host().size() > 1)
    return fail(error(ErrorCode::invalid_request, "the ranks of a host are started together")
                    .with_fix("start the process of that host again"));
  const ClusterView view = view_with_leaving();
  const RankSet staying = view.staying();
  if (view.present().has(rank()) && !staying.has(rank()))
    return fail(
        error(ErrorCode::invalid_request, "rank {} leaves the service", rank())
            .with_fix(staying.size() == 0
                          ? std::string("join when the service has been started again")
                          : fmt::format("join through a rank that stays: {}", staying.text())));
  MutexLock lock(mutex_);
  int chosen = -1;
  for (const Member& member : view.members) {
    if (member.state != MemberState::absent) continue;
    const int rank = member.identity.rank;
    if (chosen < 0 ||
        offered_at_[static_cast<size_t>(rank)] < offered_at_[static_cast<size_t>(chosen)])
      chosen = rank;
  }
  if (chosen < 0)
    return fail(error(ErrorCode::invalid_request, "all {} ranks are there", view.members.size())
                    .with_fix("join when one has left; for more ranks, restart the service with "
                              "a larger --nnodes"));
  offered_at_[static_cast<size_t>(chosen)] = RealClock().now();
  return chosen;
}

RankSet RankChanges::own_host() const {
  const Identity& self = cluster_.self();
  const int first = self.rank - self.rank % self.ranks_per_node;
  RankSet ranks;
  for (int i = 0; i < self.ranks_per_node; ++i) ranks.add(first + i);
  return ranks;
}

}  // namespace hocket
