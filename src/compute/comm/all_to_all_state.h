// The implementation of all_to_all.h: the state of every exchange, and how its messages leave and
// arrive. Thread: engine.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compute/comm/all_to_all.h"
#include "compute/comm/message_head.h"
#include "compute/comm/peer_clock.h"
#include "compute/comm/slot_memory.h"

namespace hocket {

// The longest time between two looks at Options::abort, if no thread wakes this rank.
inline constexpr Duration kLookForAbort = std::chrono::milliseconds(50);

struct AllToAll::State {
  static constexpr int kNobody = -1;
  static constexpr size_t kHeadBytes = sizeof(MessageHead);
  enum class Phase : uint8_t { idle, open, done };
  struct Peer {
    std::span<std::byte> slot;  // memory for head and message
    size_t num_bytes = 0;       // length of the message that is here
    bool is_here = false;
    std::optional<Transport::Arrival> early;  // arrived before start(), not checked yet
    MessageHead head;                         // head of the outgoing message
    std::span<std::byte> out;                 // copy of the outgoing message; agreements only
    bool under_way = false;
  };
  struct Exchange {
    int lane = 0;
    MessageKind kind = MessageKind::dispatch;
    Phase phase = Phase::idle;
    Stamp stamp;
    size_t max_bytes = 0;
    int num_missing = 0;
    std::optional<TimePoint> wait_in;  // begin of the wait_any() that found it complete
    std::vector<Peer> peers;           // empty where nothing is exchanged
    ExchangeTimes times;
  };

  State(Transport& transport_in, const Options& options_in)
      : transport(transport_in),
        options(options_in),
        rank(transport.rank()),
        num_ranks(transport.num_ranks()),
        num_peers((options.present ? options.present->size() : num_ranks) - 1),
        one_clock(transport.caps().one_clock),
        clocks(static_cast<size_t>(num_ranks)) {}

  Exchange& exchange(int lane, MessageKind kind) {
    HOCKET_CHECK(lane >= 0 && lane < kMaxLanes);
    Exchange& e = exchanges[static_cast<size_t>(lane)].at(static_cast<size_t>(kind));
    HOCKET_CHECK(e.max_bytes > 0);
    return e;
  }
  bool has(int of) const { return !options.present || options.present->has(of); }
  // True if messages are exchanged with this rank.
  bool is_peer(int of) const { return of != rank && has(of); }
  Channel channel(const Exchange& e, int peer) const {
    return {.peer = peer, .lane = e.lane, .kind = e.kind};
  }
  bool aborted() const {
    return options.abort != nullptr && options.abort->load(std::memory_order_acquire) != 0;
  }
  std::unexpected<Error> give_up(Error e, int peer) {
    failed = std::move(e);
    lost_peer = peer;
    return std::unexpected(*failed);
  }
  // True if the peer has not sent its message (in an open exchange), or has not taken this rank's
  // last one.
  bool owes(const Exchange& e, int peer) const {
    const Peer& p = e.peers[static_cast<size_t>(peer)];
    return is_peer(peer) && (e.phase == Phase::open ? !p.is_here : p.under_way);
  }
  int first_owing(const Exchange& e) const {
    int peer = 0;
    while (peer < num_ranks && !owes(e, peer)) ++peer;
    return peer < num_ranks ? peer : kNobody;
  }

  void make_slots(Exchange& e);
  Result<bool> all_here(Exchange& e);
  void note_times(Exchange& e, int peer, TimePoint arrived);
  Result<bool> all_sent(Exchange& e);
  MessageHead head_of(const Exchange& e, int from) const;
  Result<void> send(Exchange& e, int peer, Parts parts);
  using Exchanges = std::span<Exchange* const>;
  template <class Done>
  Result<void> until(Exchanges of, Done done);
  std::string owed(const Exchange& e) const;
  std::string owed(Exchanges of) const;
  int first_owing(Exchanges of) const;

  Transport& transport;
  const Options options;
  const int rank, num_ranks, num_peers;
  const bool one_clock;
  SlotMemory memory;
  std::array<std::array<Exchange, kNumMessageKinds>, kMaxLanes> exchanges;
  std::vector<PeerClock> clocks;  // indexed by peer
  std::optional<Error> failed;
  int lost_peer = kNobody;  // the rank that `failed` blames; set before `failed`
};

// Reports a wait to the watch from its first sleep until the object is destroyed.
struct ReportedWait {
  ExchangeListener* watch;
  bool is_reported = false;
  void sleeps() {
    if (watch != nullptr && !std::exchange(is_reported, true)) watch->waits();
  }
  ~ReportedWait() {
    if (is_reported) watch->goes_on();
  }
};

// Drives transfers until done() returns true; `of` are the exchanges that it waits for. Errors:
// lost_rank if the step is given up, which has priority over errors of ranks that gave it up
// before; else done()'s own error, or a stall after the timeout.
template <class Done>
Result<void> AllToAll::State::until(Exchanges of, Done done) {
  const TimePoint deadline = transport.now() + options.stall_timeout;
  ReportedWait wait{options.watch};
  for (;;) {
    transport.progress();
    auto is_done = done();
    if (is_done && *is_done) return {};
    if (aborted()) {
      return give_up(error(ErrorCode::lost_rank, "the step was aborted while {}", owed(of)),
                     kNobody);
    }
    if (!is_done) return give_up(std::move(is_done).error(), lost_peer);
    const Duration remaining = deadline - transport.now();
    if (remaining.count() <= 0) {
      return give_up(error(ErrorCode::lost_rank, "{} since {:.3f} s", owed(of),
                           to_seconds(options.stall_timeout)),
                     first_owing(of));
    }
    wait.sleeps();
    transport.wait(options.abort == nullptr ? remaining : std::min(remaining, kLookForAbort));
  }
}

}  // namespace hocket
