// The coordinator's judgement of which ranks are members: arithmetic on heartbeats and times,
// without a socket. The coordinator is rank 0, or with etcd any rank (cluster/coordinator_seat.h).
//
//   It receives a heartbeat from every rank 4 times a second.
//     no heartbeat, or no progress in an overdue step, for 1 s ......  suspect (a line in the log)
//     the same for 3 s ..............................................  lost
//     its connection ends, and no new one joins within 0.3 s ........  lost (its process died)
//     another rank reports that the data plane got nothing from it ...  lost, or the reporter if it
//                                                                      has just come in
//   A lost rank is taken back when it is connected, agrees, has no step open, and datagrams pass
//   between it and the members in both directions.
//
// Every loss and every return starts a new epoch; a step belongs to one epoch and is given up with
// it.
// The reasons for these rules:
// - The kernel of a dead process ends its connection at once; a cut link ends nothing. So an ended
//   connection needs little patience (a rank may be dialling again), and silence needs as much as
//   the longest outage that is to be survived, 2 s, and time to receive a heartbeat again.
// - A rank that computes too long makes all others wait. Those send `waiting` and are not blamed;
//   of the ranks that compute, only those furthest behind are lost.
// - A rank that was lost though it is connected (stuck, or reported) may fail again soon: it waits
//   1 s before it is taken back, and twice as long each time, up to 32 s.
// - A link that was cut ends every epoch with both of its ranks, after a pause of the service. So
//   the one that is out stays out while either says that it gets nothing from the other
//   (Heartbeat::unreachable), for at most 10 minutes, and twice as long each time, up to a day. A
//   link over which nothing ever arrived (a firewall) keeps no rank out.
// - A rank that gets nothing from any other finds one member after the other missing. So of two
//   ranks whose link is cut the one with more cut links is lost.
// - A rank is taken back only without an open step, because its engine may still be inside a step
//   of the epoch that ended; engines leave such a step by the abort flag.
//
// With Start::tolerate_ranks the ranks that are left serve in the next epoch, if enough ranks are
// left. Before the first such epoch all ranks must have been ready once, or enough ranks for
// Start::begin_after: then the service starts without those that have not come. From then on a rank
// is taken (back) when it has loaded, since the others serve meanwhile, and only if its terms are
// theirs: it is refused before it could disturb them. A coordinator that takes over a running
// service first waits LivenessLimits::gather for all, so that no rank is left out that is only
// dialling. Thread: the control plane's. Time is passed in.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/cut_links.h"
#include "cluster/epochs.h"
#include "cluster/liveness_limits.h"
#include "cluster/service_begin.h"
#include "cluster/wire.h"

namespace hocket {

class Membership {
 public:
  struct Start {
    uint32_t last_epoch = 0;  // epochs count on from it
    int tolerate_ranks = 0;   // ranks that may be missing in an epoch that serves
    bool began = false;       // as ClusterView::began
    int replicas = -1;        // as ClusterView::replicas
    Duration begin_after = std::chrono::seconds(60);
  };
  // `self` is the coordinator.
  Membership(Identity self, const LivenessLimits& limits, TimePoint now, const Start& start);
  Membership(Identity self, const LivenessLimits& limits, TimePoint now)
      : Membership(std::move(self), limits, now, Start()) {}

  // Registers a rank that joins over a new connection. Errors: lost_rank if it disagrees with
  // `self`, has other terms than the members, or says an epoch that cannot have been (final);
  // queue_full if another live process is that rank already (it may try again).
  Result<void> join(const JoinMessage& join, TimePoint now);
  // Takes in a heartbeat. Errors: lost_rank if the rank is not a member and its terms differ from
  // theirs (final: it cannot be let in).
  Result<void> heartbeat(int rank, const Heartbeat& heartbeat, TimePoint now);
  // Records that the connection of `rank` ended.
  void cut(int rank, TimePoint now);
  // Records that `rank` said that it leaves.
  void leave(int rank, std::string_view why);
  // Rank `by` waited for `rank` and got no message; -1 if it gives up the step and no rank is
  // missing. A report of another epoch, or by a rank that is no member, is ignored. The link
  // between two ranks may fail at either: the one with more cut links is lost. If both have the
  // same number, `by` is if it joined in an epoch later than `rank`, and not long ago
  // (LivenessLimits::good_after).
  struct Report {
    int by = 0, rank = -1;
    uint32_t epoch = 0;
    std::string why;
  };
  void report(const Report& report, TimePoint now);
  // Judges all ranks. Call it at next_deadline(), after all messages that had arrived were handled.
  void tick(TimePoint now);
  TimePoint next_deadline() const;

  const ClusterView& view() const { return epochs_.view(); }
  // Grows with every change of view().
  uint64_t version() const { return epochs_.version(); }
  // Returns true if the rank's connection is to be kept: false once it is silent for too long.
  bool connected(int rank) const { return slots_[static_cast<size_t>(rank)].connected; }
  std::vector<RankStatus> status(TimePoint now) const;

 private:
  struct Slot {
    bool connected = false;
    bool suspect = false;
    TimePoint last_heard{};               // time of the last heartbeat
    TimePoint last_moved{};               // time of the last heartbeat that showed another step
    TimePoint cut_at = TimePoint::max();  // when the connection of a member ended
    TimePoint in_since{}, pause_until{};
    uint32_t in_after = 0;  // the last epoch without it
    Duration pause{};
  };
  const Member& member(int rank) const { return epochs_.member(rank); }
  Slot& slot(int rank) { return slots_[static_cast<size_t>(rank)]; }
  const Slot& slot(int rank) const { return slots_[static_cast<size_t>(rank)]; }
  Heartbeat& last_heartbeat(int rank) { return heartbeats_[static_cast<size_t>(rank)]; }
  const Heartbeat& last_heartbeat(int rank) const { return heartbeats_[static_cast<size_t>(rank)]; }
  int num_ranks() const { return static_cast<int>(slots_.size()); }
  // Return how long the rank is silent, or makes no progress beyond its expected step time.
  Duration silence(int rank, TimePoint now) const;
  Duration stuck(int rank, TimePoint now) const;
  void judge_silence(int rank, TimePoint now);
  void judge_stuck(TimePoint now);
  void warn(int rank, TimePoint now);
  void lose(int rank, const std::string& why);
  void pause(int rank, TimePoint now);
  void let_in(int rank, TimePoint now);
  // Another process is this rank from now on.
  void forget_process(int rank);
  // Returns why the terms of a rank that is no member keep it out; nullopt if they do not.
  std::optional<Error> why_out(const Identity& identity, const Heartbeat& heartbeat) const;
  Result<void> check_epoch(const JoinMessage& join) const;

  const int own_;  // the coordinator's rank
  const LivenessLimits limits_;
  std::vector<Slot> slots_;            // by rank
  std::vector<Heartbeat> heartbeats_;  // by rank: its last one
  CutLinks links_;
  ServiceBegin begin_;
  Epochs epochs_;
};

}  // namespace hocket
