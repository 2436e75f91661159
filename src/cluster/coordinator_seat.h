// The seat of the coordinator: a key of etcd, which one rank holds as long as it renews its lease.
//
//   /hocket/NAME/rank/R ......  lease   a rank that is there: process, host, what all must agree on
//   /hocket/NAME/coordinator .  lease   who coordinates: process, rank, where it listens
//   /hocket/NAME/epoch .......  stays   the last epoch that was taken, by whom, for which ranks
//
//   coordinator not there  --swap: create revision 0-->   this rank's, for one term
//   epoch n + 1 wanted     --swap: the seat's create revision is that of my term-->   taken
//   rank/R not there       --swap: create revision 0-->   this process is rank R
//
// A term is the create revision of the seat. An epoch is taken in a swap that compares it. A rank
// that lost the seat, or does not know, fails this swap. The next holder continues from the last
// epoch. No epoch is therefore announced twice, whatever the clocks do. The holder also stops by
// its own clock: `mine` ends `margin` before the lease can end.
// If the seat is empty and this rank had it last, in the same epoch, then no other rank had it
// meanwhile. A rank does not take the seat while an older one is there that disagrees with it
// (another model, other places of experts): it would refuse all others. A process that finds
// another one at its rank's entry follows, but does not take the seat until that entry has ended.
// If etcd does not answer, nothing changes: the state says why, and calls are repeated.
// Thread: one. Calls of Etcd block; the clock is read around them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cluster/etcd.h"
#include "cluster/member.h"
#include "cluster/socket.h"

namespace hocket {

// The rank that has the seat, as the key says.
struct SeatHolder {
  std::string boot_id;
  int rank = 0;
  HostPort address;  // where it listens

  bool operator==(const SeatHolder&) const = default;
};

class CoordinatorSeat {
 public:
  struct Options {
    std::string name = "hocket";
    Identity self;
    Duration ttl = std::chrono::seconds(4);  // whole seconds
    Duration renew = std::chrono::seconds(1);
    Duration margin = std::chrono::milliseconds(500);
    Duration retry = std::chrono::milliseconds(250);  // after an error
  };
  struct State {
    bool known = false;                // the key was read, and is watched
    std::optional<SeatHolder> holder;  // nullopt: no rank has the seat
    int64_t holder_term = 0;           // the holder's
    bool mine = false;
    TimePoint until{};   // while mine: end of the time in which this rank may act as coordinator
    int64_t term = 0;    // while mine
    uint32_t floor = 0;  // the last epoch taken before this term
    uint32_t taken = 0;  // the last epoch taken in this term; floor if none was
    std::string local_host;
    std::string problem;  // why etcd does not answer; empty: it does

    bool operator==(const State&) const = default;
  };

  CoordinatorSeat(Etcd& etcd, const Clock& clock, Options options);

  // Targets, until others are given. nullopt: this rank does not want the seat, and releases it if
  // it has it. The address is where it would listen.
  void want(std::optional<HostPort> address) { wanted_address_ = std::move(address); }
  // Wants the epoch in this term alone: its ranks are those of its coordinator, which is another in
  // the next term. `ranks` is for people: "0,2".
  void want_epoch(int64_t term, uint32_t epoch, std::string ranks);

  // The process that has the seat in this term has ended: the seat is taken from it. If it has not
  // ended it finds the seat gone, and takes no epoch in this term. If it takes the seat again, that
  // is another term, which this call does not end.
  void end_term(int64_t term) { gone_term_ = term; }

  // Does what is due.
  void tick();
  TimePoint next_deadline() const;
  // True after an error, until the next try: tick() does nothing, and reads no watch.
  bool backs_off() const { return clock_.now() < retry_at_; }
  // Ends the lease, and with it releases the seat.
  void resign();

  State state() const;

 private:
  struct WantedEpoch {
    int64_t term = 0;
    uint32_t epoch = 0;
    std::string ranks;
  };
  Result<void> work();
  Result<void> get_lease();
  Result<void> renew();
  Result<void> read_seat();
  Result<void> look();
  Result<void> follow();
  Result<void> take();
  Result<void> begin_term();
  Result<void> empty_seat();
  Result<uint32_t> read_epoch();
  Result<void> take_epoch();
  Result<bool> may_take();
  Result<void> take_rank();
  void hold(const std::vector<EtcdEntry>& read);
  void lose_lease();
  bool is_self() const;
  bool has_seat() const;
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }

  Etcd& etcd_;
  const Clock& clock_;
  const Options options_;
  const std::string prefix_, agreed_;
  EtcdLease lease_;
  bool is_rank_ = false;       // the entry of this rank names this process
  std::string logged_holder_;  // the other process of this rank that the log has named
  TimePoint until_{};          // end of the time in which this rank may act as coordinator
  TimePoint renew_at_{}, retry_at_{}, looked_at_{};
  bool watching_ = false;
  std::optional<SeatHolder> holder_;
  int64_t holder_term_ = 0;
  int64_t seen_ = 0;       // the seat is known as of this revision
  int64_t term_ = 0;       // the last term that this rank took
  int64_t gone_term_ = 0;  // the last term whose process has ended; 0: none
  uint32_t floor_ = 0, taken_ = 0;
  std::optional<HostPort> wanted_address_;
  WantedEpoch wanted_epoch_;
  std::string problem_;
};

}  // namespace hocket
