// Who is there, who is not, and what to do about it: one thread "cluster" a rank, with TCP
// connections of its own to rank 0, never on the way of data.
//
//   join() .... wait_whole() -> ClusterView ... enter(epoch)   the engine may work in this epoch
//   every rank  <-- beats, 4 a second -->  rank 0   pulse(): the engine says where it is
//   aborted() becomes non-zero                      the epoch is over: leave the step, close it
//   wait_whole() -> ClusterView ... enter(next epoch)   when the lost rank is back
//
// Connections go to rank 0 alone, a star, because that is enough: rank 0 sees every other rank die,
// every other rank sees rank 0 die, and rank 0 tells all. What a star cannot see, a cut link
// between two other ranks, the data plane sees in its waits, and says by report_lost(). A full mesh
// would see it sooner, at the price of n^2 connections and of ranks that disagree on who is there;
// here rank 0 alone decides, so all members of an epoch have the same view of it. How a loss is
// noticed, and within which time: membership.h. All ranks know who was lost, and why, within 4 s.
// A rank that comes back (restarted, or its link healed) joins by itself; so does everyone when
// rank 0 comes back. The store is empty then, and epochs go on counting. The thread sleeps in epoll
// until something arrives or a limit is reached.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/control_role.h"

namespace hocket {

class ControlPlane {
 public:
  // Rank 0: listens and returns. Others: return when rank 0 took them. An empty boot id is made up.
  // Thread: any; it may take rank_wait. Errors: bad_value; port_in_use, io (rank 0); unauthorized
  // (tokens); lost_rank: refused, naming the field and both values, or rank 0 did not come in time.
  static Result<std::unique_ptr<ControlPlane>> join(const ClusterOptions& options, Identity self);
  // Says to the others that it goes.
  ~ControlPlane();

  // Until all ranks are there, in an epoch that this rank has not left. Thread: any but the
  // engine's during a step. Errors: timed_out, naming who is missing; failure().
  Result<ClusterView> wait_whole(Duration most);
  // The engine's next steps belong to `epoch`; clears aborted(). With no step open. Thread: engine.
  // Errors: lost_rank when the epoch is over already, saying why.
  Result<void> enter(uint32_t epoch);
  // 0 from enter() until the epoch is over, then and before non-zero. Waits of the data plane poll
  // it. Thread: any.
  const std::atomic<uint32_t>& aborted() const;
  // Thread: see pulse.h.
  Pulse& pulse();

  // The data plane's waits missed a rank in the epoch that was entered last.   Thread: any.
  void report_lost(int rank, std::string_view why);
  // Nobody is missing, but the step cannot go on: every rank leaves the epoch.   Thread: any.
  void abort(std::string_view why);

  // As last told by rank 0. num_changes() grows with every change of it.   Thread: any.
  ClusterView view() const;
  uint64_t num_changes() const;
  // Why this rank stopped trying: it was refused, or rank 0 stayed away for rank_wait.
  std::optional<Error> failure() const;
  // Of all ranks, as of the last heartbeat; empty elsewhere than on rank 0.   Thread: any.
  std::vector<RankStatus> status() const;
  // Where rank 0 listens; 0 on the others.
  uint16_t port() const;
  // The address of this host by which the ranks reach each other, without a port: that of the
  // control connection. Thread: any.
  std::string local_host() const;
  const Identity& self() const;

  // The store of rank 0: each call asks it and waits for its answer.   Thread: any but the engine's
  // during a step. Errors, of all: lost_rank (rank 0 is not there), timed_out, queue_full (limits
  // of store.h), bad_value.
  // lifetime: how long the entry lives unless it is set again; 0 for good.
  Result<void> set(std::string_view key, std::string_view value, Duration lifetime = {});
  Result<std::string> get(std::string_view key);                  // also not_found
  Result<std::string> wait(std::string_view key, Duration most);  // until somebody sets it
  Result<int64_t> add(std::string_view key, int64_t number);      // the sum; a new key begins at 0
  Result<void> erase(std::string_view key);

 private:
  struct State;
  explicit ControlPlane(std::unique_ptr<State> state);
  Result<StoreReply> ask(StoreRequest request, Duration most);
  void post_report(uint32_t epoch, int rank, std::string_view why);
  std::unique_ptr<State> state_;
};

}  // namespace hocket
