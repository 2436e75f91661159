// The role of a rank in a service whose coordinator is found by etcd: coordinator or follower, as
// the seat says (cluster/coordinator_seat.h).
//
//   no rank has the seat, nor does this one reach a coordinator   listen, try to take it
//   this rank has it ......................................   coordinator: epochs go through it
//   another has it ........................................   follower of that one
//   no rank has it, but this one reaches a coordinator ....   wait: that one takes it again
//
// The last line is the case of a coordinator that does not reach etcd for a while: the ranks stay
// in the epoch that they have, since another epoch can be whole only if one of them leaves this
// one. The coordinator announces no other epoch, because none is taken for it. When it reaches etcd
// again it takes the seat again, and continues if no epoch was taken meanwhile. A rank that is lost
// can return only in a new epoch, so while etcd cannot be reached a loss pauses the service. The
// small store (store.h) is in the coordinator's memory, as it is in rank 0's without etcd. It holds
// addresses for one epoch, which the ranks set again in the next. When a coordinator sends no
// heartbeat for too long, another rank has the seat within CoordinatorSeat::Options::ttl and 2 s.
// When the coordinator's process ends, its port refuses connections, and the first rank that
// notices this takes the seat at once. If that rank was wrong (a firewall refused), the coordinator
// finds that the seat is taken; no epoch is taken twice. Thread: the control plane's.
#pragma once

#include <memory>

#include "cluster/coordinator.h"
#include "cluster/coordinator_seat_thread.h"
#include "cluster/follower.h"

namespace hocket {

class ElectedRole final : public ControlRole {
 public:
  ElectedRole(const ClusterOptions& options, Identity self, Poller& poller, Shared& shared);
  ~ElectedRole() override;

  void on_event(uint64_t token, uint32_t events, TimePoint now) override;
  void on_command(ControlCommand command, TimePoint now) override;
  void on_tick(TimePoint now) override;
  TimePoint next_deadline() const override;
  void leave(const Error& why) override;

 private:
  ControlRole& role();
  const ControlRole& role() const;
  void follow_seat(const CoordinatorSeat::State& seat, TimePoint now);
  void run_for_seat(const CoordinatorSeat::State& seat, TimePoint now);
  void take_role(const CoordinatorSeat::State& seat);
  void keep_role(const CoordinatorSeat::State& seat, TimePoint now);
  void step_down(const std::string& why);
  bool is_other(const CoordinatorSeat::State& seat) const;

  const ClusterOptions options_;
  const Identity self_;
  Poller& poller_;
  Shared& shared_;
  Fd news_;                             // readable when the seat's state has changed
  std::unique_ptr<Follower> follower_;  // exactly one of these two is there
  std::unique_ptr<Coordinator> coordinator_;
  int64_t term_ = 0;           // the coordinator's
  int64_t followed_term_ = 0;  // that of the holder that the follower was given last
  Fd listener_;                // while this rank runs for the seat
  TimePoint listen_at_{};      // not before; after a failure
  std::unique_ptr<CoordinatorSeatThread> seat_;  // last, so that its thread ends first
};

}  // namespace hocket
