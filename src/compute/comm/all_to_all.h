// Lets every rank send one message to every other rank and receive one from each. Dispatch, combine
// and the agreement of a step are such exchanges. Each has a start and a wait; between them the
// rank computes.
//
//   start(kind, stamp, parts of each peer)   pushes; empty messages too, because a message tells a
//                                            peer that its slot here is free again
//   wait(kind, stamp)                        until one of each peer is here; all lanes progress in
//                                            this time
//   from(kind, peer)                         the peer's message, until release()
//
// One slot for each kind, lane and peer is enough. A peer's next dispatch follows its combine_wait
// of this one, so it follows my combine, which I start after I have read its dispatch; the same
// holds for combines. A peer's next agreement follows mine, so at most one is early. Three rules
// follow, and breaking one is a bug: release(dispatch) before start(combine) of the same lane,
// release(combine) before start(dispatch), release(agree) before start(agree). Stamps check this: a
// message of another step, layer or epoch is an error that names both.
//
// The first error stays: every later start and wait returns it at once, from() is empty, release()
// does nothing. So a pass can be played to its end; then the exchange is made again, over new ends.
// Thread: one at a time (vote_carrier.h).   Allocates nothing after construction.
// Source: docs/contracts/expert_parallel.md.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compute/comm/transport.h"
#include "core/rank_set.h"

namespace hocket {

// Identifies an exchange. It is equal on all ranks, or the message is refused.
struct Stamp {
  uint64_t step = 0;
  uint16_t layer = 0;
};

// The times of an exchange of one lane, by this rank's clock:
//   start         it began
//   posted        this rank had pushed its messages
//   peers_posted  the last peer had pushed, as far as clocks can be compared (peer_clock.h)
//   last_byte     all bytes were here
// Peers may have pushed, and bytes been here, before this rank began; without peers both are
// `start`. A wait lasts from wait_in to wait_out: before peers_posted it is for slower ranks, after
// it for the wire. If wait_any() waited, wait_in is its begin.
struct ExchangeTimes {
  TimePoint start{}, posted{}, peers_posted{}, last_byte{}, wait_in{}, wait_out{};
  uint64_t out_bytes = 0, in_bytes = 0;
};

// An observer of an exchange: it is called when the rank makes progress, and when it waits for
// others. Its functions must be cheap and allocate nothing; all are optional.   Thread: that of the
// exchange.
class ExchangeListener {
 public:
  virtual ~ExchangeListener() = default;
  virtual void started(int /*lane*/, MessageKind /*kind*/, Stamp /*stamp*/) {}
  // Called before and after each wait that blocks.
  virtual void waits() {}
  virtual void goes_on() {}
  // progress() calls this between two operations, at a point where another exchange may begin or
  // end.
  virtual void progressed() {}
  // Called after each wait that succeeded, also if it did not block.
  virtual void finished(int /*lane*/, MessageKind /*kind*/, Stamp /*stamp*/,
                        const ExchangeTimes& /*times*/) {}
};

using MessageSizes = std::array<size_t, kNumMessageKinds>;  // bytes, indexed by MessageKind

// Returns AllToAll::Options::max_bytes with the same sizes for the first num_lanes lanes.
constexpr std::array<MessageSizes, kMaxLanes> on_lanes(int num_lanes, const MessageSizes& sizes) {
  std::array<MessageSizes, kMaxLanes> all{};
  for (int lane = 0; lane < num_lanes; ++lane) all.at(static_cast<size_t>(lane)) = sizes;
  return all;
}

class AllToAll {
 public:
  struct Options {
    // The longest message to or from one peer, by lane, without its head. 0: this kind is never
    // exchanged on this lane, not even as empty messages, and takes no memory.
    std::array<MessageSizes, kMaxLanes> max_bytes{};
    uint32_t epoch = 0;  // epoch of the membership
    // The ranks that exchange, this one among them; nullopt: all. The others send and get nothing.
    std::optional<RankSet> present;
    Duration stall_timeout = std::chrono::seconds(30);  // the last resort if a rank is missing
    // Becomes non-zero when the step is to be given up because a rank was lost. Waits then return
    // at once if the thread that sets it calls Transport::wake(), else after 50 ms.
    const std::atomic<uint32_t>* abort = nullptr;
    ExchangeListener* watch = nullptr;  // outlives the exchange
  };
  // The transport outlives the exchange and is used by no other.
  // Errors: out_of_memory.
  static Result<std::unique_ptr<AllToAll>> create(Transport& transport, const Options& options);
  ~AllToAll();
  // Returns the bytes that create() allocates, for the plan of a rank's memory.
  static size_t bytes_for(int num_ranks, const Options& options);

  int rank() const;
  int num_ranks() const;     // those that are absent included
  bool has(int rank) const;  // true if the rank exchanges
  // Returns the rank that the first error blames: the missing one (of several the lowest), or the
  // sender of an unusable message. -1: none in particular (an abort), or no error.
  int lost_peer() const;

  // Sends parts[peer] to that peer as one message: at most kMaxPieces - 1 pieces with together at
  // most max_bytes; parts[rank()] is not sent. The bytes of a dispatch must not change until this
  // lane's next wait(combine) has returned, and those of a combine until its next wait(dispatch):
  // peers send those messages after they have these. The end of the exchange ends that, too. The
  // bytes of an agreement are copied.
  // Errors: lost_rank.
  using Parts = std::span<const std::span<const std::byte>>;
  Result<void> start(int lane, MessageKind kind, Stamp stamp, std::span<const Parts> parts);
  // Waits until one message of each peer is here. Errors: lost_rank, naming the missing rank and
  // what it was to send; also for a wrong stamp, a damaged head, an abort.
  Result<void> wait(int lane, MessageKind kind, Stamp stamp);
  // Waits until one of the open `lanes` is complete, so that wait() would not block. Returns that
  // lane, of several the first in the list. Errors: as wait().
  Result<int> wait_any(std::span<const int> lanes, MessageKind kind, Stamp stamp);
  // Returns true if wait() would return at once. Drives transfers.
  bool ready(int lane, MessageKind kind);
  // To be called before start(). Returns true if start() would not wait until this rank's last
  // message of this kind is sent. Drives transfers.
  bool may_start(int lane, MessageKind kind);
  // To be called before start(). Returns true if a peer has begun the next exchange of this kind,
  // or if none can arrive any more, as start() or wait() will report. Drives transfers.
  bool peer_started(int lane, MessageKind kind);
  // Returns a peer's message between wait() and release(), without its head, aligned to 64 bytes;
  // empty for this rank itself and for absent ones.
  std::span<const std::byte> from(int lane, MessageKind kind, int peer) const;
  // Lets the slots of this exchange be written again.
  void release(int lane, MessageKind kind);

  // Drives transfers without waiting; called between operations.
  void progress();
  // Drives transfers inside an operation, where no other exchange begins or ends.
  void progress_inside();
  // Returns the times of the last exchange of this kind on this lane.
  const ExchangeTimes& times(int lane, MessageKind kind) const;

 private:
  struct State;
  explicit AllToAll(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hocket
