// Keeps the list of ranks that are alive, and ends the step when one is lost. Each rank runs one
// thread "cluster" with its own TCP connection to the coordinator, apart from the data plane. The
// coordinator is rank 0; with ClusterOptions::store it is any rank, and etcd says which
// (elected_role.h). Then that rank does all that this comment says of rank 0.
//
//   join() .... wait_epoch() -> ClusterView ... enter(epoch)   the engine may work in this epoch
//   every rank  <-- 4 heartbeats a second -->  rank 0   own_heartbeat() has the engine's step
//   aborted() becomes non-zero                     the epoch is over: leave the step, close it
//   wait_epoch() -> ClusterView ... enter(next epoch)   when all ranks are there
//
// With ClusterOptions::tolerate_ranks the next epoch also begins when enough ranks are there.
//
// All connections go to rank 0 (a star), because that is enough: rank 0 notices the end of every
// other rank and reports it to all, and every rank notices the end of rank 0. These connections do
// not show that a link between two other ranks is cut; datagrams (link_monitor.h) do, and so do the
// waits of the data plane, which call report_lost(). A full mesh would need n^2 connections, and
// its ranks could disagree on the members; here rank 0 alone decides, so all members of an epoch
// have the same view of it. membership.h says how a loss is noticed, and within which time. All
// ranks know which rank was lost, and why, within 4 s. A rank that was restarted, or whose link
// works again, joins by itself; all ranks do so when rank 0 was restarted. The store is empty
// then, and epochs continue counting. The thread sleeps in epoll until a message arrives or a
// deadline is reached.
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
  // On rank 0, listens and returns; on other ranks, returns when rank 0 has accepted this one. With
  // a store, returns when some rank coordinates. Makes a boot id if `self` has none. May block for
  // rank_wait. Thread: any. Errors: bad_value; port_in_use, io (rank 0); unauthorized (tokens);
  // lost_rank if rank 0 refuses (names the field and both values) or does not answer in time.
  static Result<std::unique_ptr<ControlPlane>> join(const ClusterOptions& options, Identity self);
  // Calls leave().
  ~ControlPlane();

  // Sends the other ranks the message that this one leaves, and joins the thread: the view stays as
  // it is, and calls of the store fail. Call it once. Thread: any.
  void leave();

  // Waits for an epoch that has all ranks (with tolerate_ranks: enough ranks), this one among them,
  // and that this rank has not left. Thread: any but the engine's during a step. Errors: timed_out,
  // naming the missing ranks; failure().
  Result<ClusterView> wait_epoch(Duration max_wait);
  // Waits until the ranks have agreed on the replicas of experts that each of them holds in every
  // layer (ClusterView::replicas), after own_heartbeat().set_max_replicas(). Thread: any. Errors:
  // timed_out; failure().
  Result<int> wait_replicas(Duration max_wait);
  // Declares that the engine's next steps belong to `epoch`, and clears aborted(). No step may be
  // open. Thread: engine. Errors: lost_rank, with the reason, if the epoch is over already.
  Result<void> enter(uint32_t epoch);
  // Returns a flag that is 0 from enter() until the epoch is over, else non-zero. Waits of the data
  // plane poll it. Thread: any.
  const std::atomic<uint32_t>& aborted() const;
  // Threads: see own_heartbeat.h.
  OwnHeartbeat& own_heartbeat();

  // Reports that the data plane waited for `rank` and got no message in the entered epoch. Thread:
  // any.
  void report_lost(int rank, std::string_view why);
  // Reports that this rank cannot connect to `rank` in `epoch`, which it has not entered yet (-1:
  // it cannot connect to any). Every rank leaves the epoch. Thread: any.
  void report_unreachable(uint32_t epoch, int rank, std::string_view why);
  // Gives up the step though no rank is missing: every rank leaves the epoch. Thread: any.
  void abort(std::string_view why);

  // Returns the view that rank 0 sent last; num_changes() grows with every change. Thread: any.
  ClusterView view() const;
  uint64_t num_changes() const;
  // Returns why this rank stopped trying: rank 0 refused it, or could not be reached for rank_wait.
  std::optional<Error> failure() const;
  // Returns the status of all ranks at the last heartbeat; empty except where this rank
  // coordinates. Thread: any.
  std::vector<RankStatus> status() const;
  // Returns the port where rank 0 listens; 0 on the other ranks, and with a store.
  uint16_t port() const;
  // Returns the address (without port) by which other ranks reach this host: that of the control
  // connection. Thread: any.
  std::string local_host() const;
  const Identity& self() const;
  // Returns a key that only ranks with this cluster's token know; `use` names its one use. Without
  // a token it is no secret. Thread: any.
  Proof key_for(std::string_view use) const;
  // Returns what connections between ranks are encrypted with; null: without TLS.
  // Thread: any.
  const std::shared_ptr<const TlsContext>& tls() const;
  // True if the others pause while this rank is away, because none of them can coordinate: this is
  // rank 0, and there is no store.
  bool pauses_others() const;

  // The calls below use the store of rank 0: each sends a request and waits for the answer. Thread:
  // any but the engine's during a step. Errors of all: lost_rank (rank 0 cannot be reached),
  // timed_out, queue_full (limits of store.h), bad_value. `lifetime` is how long the entry lives
  // unless it is set again; 0 keeps it for good.
  Result<void> set(std::string_view key, std::string_view value, Duration lifetime = {});
  Result<std::string> get(std::string_view key);  // Errors: also not_found.
  // Waits until a rank sets it.
  Result<std::string> wait(std::string_view key, Duration max_wait);
  // Returns the sum; a missing key counts as 0.
  Result<int64_t> add(std::string_view key, int64_t number);
  Result<void> erase(std::string_view key);

 private:
  struct State;
  explicit ControlPlane(std::unique_ptr<State> state);
  Result<StoreReply> ask(StoreRequest request, Duration max_wait);
  void post_report(uint32_t epoch, int rank, std::string_view why);
  std::unique_ptr<State> state_;
};

}  // namespace hocket
