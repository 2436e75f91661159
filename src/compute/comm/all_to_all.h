// Every rank sends one message to every other and receives one from each: what dispatch, combine
// and the agreement of a step are made of. A start and a wait; between them the rank computes.
//
//   start(kind, stamp, parts of each peer)   pushes; also empty messages, for a message is what
//                                            tells a peer that its slot here is free again
//   wait(kind, stamp)                        until one of each peer is there; moves all lanes
//                                            meanwhile
//   from(kind, peer)                         what it said, until release()
//
// Why one slot a kind, lane and peer is enough: a peer's next dispatch comes after its combine_wait
// of this one, so after my combine, which I start when I have read its dispatch; and likewise the
// other way round. A peer's next agreement comes after mine, so at most one is early. Hence three
// rules, whose breach is a bug: release(dispatch) before start(combine) of the same lane,
// release(combine) before start(dispatch), release(agree) before start(agree).
// Stamps make sure of it: a message of another step, layer or epoch is an error that names both.
//
// The first error stays: every later start and wait returns it at once, from() is empty, release()
// does nothing. A pass can so be played to its end; then the exchange is made anew, over new ends.
// Thread: engine.   Allocates nothing after construction.
// Source: docs/contracts/expert_parallel.md.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compute/comm/transport.h"

namespace hocket {

// Which exchange this is. Equal on all ranks, or the message is refused.
struct Stamp {
  uint64_t step = 0;
  uint16_t layer = 0;
};

// When an exchange of one lane began, was pushed here, was pushed by the last of the peers (by this
// rank's clock, as far as clocks can be compared: peer_clock.h), had all its bytes here; and when
// somebody waited for it. Peers may have pushed, and all bytes been here, before this rank began;
// with no peers both are `start`. Of wait_in .. wait_out, what is before peers_posted was waiting
// for others, what is after it for the wire. wait_in is when wait_any() began, if it was that which
// waited.
struct ExchangeTimes {
  TimePoint start{}, posted{}, peers_posted{}, last_byte{}, wait_in{}, wait_out{};
  uint64_t out_bytes = 0, in_bytes = 0;
};

// Who watches over a rank: told that it moves, and when it stands still because of others. Cheap;
// allocates nothing. What a watch does not ask for passes it by.   Thread: engine.
class ExchangeWatch {
 public:
  virtual ~ExchangeWatch() = default;
  virtual void started(int /*lane*/, MessageKind /*kind*/, Stamp /*stamp*/) {}
  // Around each wait that blocks.
  virtual void waits() {}
  virtual void goes_on() {}
  // After each wait that succeeded, also one that did not block.
  virtual void heard(int /*lane*/, MessageKind /*kind*/, Stamp /*stamp*/,
                     const ExchangeTimes& /*times*/) {}
};

using MessageSizes = std::array<size_t, kNumMessageKinds>;  // by MessageKind

// For AllToAll::Options::most_bytes: the first lanes, all alike.
constexpr std::array<MessageSizes, kMaxLanes> on_lanes(int num_lanes, const MessageSizes& sizes) {
  std::array<MessageSizes, kMaxLanes> all{};
  for (int lane = 0; lane < num_lanes; ++lane) all.at(static_cast<size_t>(lane)) = sizes;
  return all;
}

class AllToAll {
 public:
  struct Options {
    // Longest message to or from one peer, without its head, by lane. 0: nothing is ever exchanged
    // there, not even empty messages, and it takes no memory.
    std::array<MessageSizes, kMaxLanes> most_bytes{};
    uint32_t epoch = 0;                                 // of the membership
    Duration stall_timeout = std::chrono::seconds(30);  // last resort: somebody is not there
    // Becomes non-zero when the step is to be given up (a rank was lost): waits return at once when
    // whoever sets it then calls Transport::wake(), else after 50 ms.
    const std::atomic<uint32_t>* abort = nullptr;
    ExchangeWatch* watch = nullptr;  // outlives this
  };
  // The transport outlives it, and is no other's. Errors: out_of_memory.
  static Result<std::unique_ptr<AllToAll>> create(Transport& transport, const Options& options);
  ~AllToAll();
  // Memory that create() takes, for the plan of a rank's memory.
  static size_t bytes_for(int num_ranks, const Options& options);

  int rank() const;
  int num_ranks() const;
  // Whom the first error blames: the rank that is missing, of several the lowest, or whose message
  // cannot be used. -1: nobody in particular (an abort), or no error.
  int lost_peer() const;

  // parts[peer]: what goes to that peer as one message, at most kMaxPieces - 1 pieces of together
  // most_bytes; parts[rank()] is not sent. The bytes of a dispatch must stay as they are until this
  // lane's next wait(combine) has returned, those of a combine until its next wait(dispatch): what
  // comes then was started after the peers had them; or until this is destroyed. Those of an
  // agreement are copied.
  // Errors: lost_rank.
  using Parts = std::span<const std::span<const std::byte>>;
  Result<void> start(int lane, MessageKind kind, Stamp stamp, std::span<const Parts> parts);
  // Errors: lost_rank, naming the rank that is missing and what it was to send (also for a stamp
  // that does not fit, a head that is damaged, an abort).
  Result<void> wait(int lane, MessageKind kind, Stamp stamp);
  // Until one of `lanes`, which are open, could be waited for without blocking: that lane, the
  // first of several. Errors: as wait().
  Result<int> wait_any(std::span<const int> lanes, MessageKind kind, Stamp stamp);
  // Whether wait() would return at once. Moves what can move.
  bool ready(int lane, MessageKind kind);
  // Before start(): whether a peer has begun the next exchange of this kind, or none can come any
  // more, as start() and wait() will say. Moves what can move.
  bool called(int lane, MessageKind kind);
  // Between wait() and release(): the message without its head, aligned to 64 bytes; empty for this
  // rank itself.
  std::span<const std::byte> from(int lane, MessageKind kind, int peer) const;
  // Its slots may be written again.
  void release(int lane, MessageKind kind);

  // Moves what can move; for borders between operations.
  void progress();
  // Of the last exchange of this kind on this lane.
  const ExchangeTimes& times(int lane, MessageKind kind) const;

 private:
  struct State;
  explicit AllToAll(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hocket
