// The messages between the ranks of one process and the links that they take, as a queue of events.
// It does what loopback.h promises, without threads and clock: the caller passes the time.
//
//   post -> posted -- commit --> to_link -- first byte --> to_slot -- last byte --> slot | kept
//
// A message is kept aside if it is not expected yet.
// Thread: one at a time.   After warm-up a message allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compute/comm/loopback.h"
#include "compute/comm/transport.h"

namespace hocket {

class LinkSimulation {
 public:
  LinkSimulation(int num_ranks, const LinkModel& links);
  int num_ranks() const { return num_ranks_; }

  // The functions of Transport, for the end of `rank`.
  void expect(int rank, const Channel& from, std::span<std::byte> slot);
  Result<std::optional<Transport::Arrival>> arrived(int rank, const Channel& from);
  Result<void> post(int rank, const Channel& to, std::span<const std::span<const std::byte>> parts);
  Result<bool> sent(int rank, const Channel& to) const;
  void withdraw(int rank);
  // Returns true if anything arrived, left or broke for the rank since take_events().
  bool has_events(int rank) const { return ends_[rank].has_events; }
  bool take_events(int rank) { return std::exchange(ends_[rank].has_events, false); }
  bool is_lost(int rank) const { return ends_[rank].lost; }

  // Puts posted messages on the links at `now`, in the order of the ranks.
  void commit(TimePoint now);
  // Carries out all events up to `now`. Call commit() before.
  void advance(TimePoint now);
  // Return the time of the next event; TimePoint::max(): none. The second: to or from the rank.
  TimePoint next_event() const;
  TimePoint next_event_of(int rank) const;

  // Faults.
  void set_links(const LinkModel& links);
  void cut(int rank, bool is_cut);
  void stall(int rank, TimePoint until);
  void lose(int rank);
  // leave() removes the rank's end; its sent messages still arrive. enter() gives it another end.
  void leave(int rank);
  void enter(int rank);

 private:
  enum class Flight : uint8_t { none, posted, to_link, to_slot, blocked };
  struct Path {  // a channel with its sender's and its receiver's state
    int from = 0, to = 0;
    MessageKind kind = MessageKind::dispatch;
    // The message under way: its bytes, its place (flight) and the time when it leaves that place
    // (at).
    Flight flight = Flight::none;
    std::array<std::span<const std::byte>, kMaxPieces> parts{};
    int num_parts = 0;
    std::vector<std::byte> own;  // a copy of the bytes, if the sender has left
    size_t num_bytes = 0;
    TimePoint at{};
    uint64_t ticket = 0;
    uint64_t num_messages = 0;
    TimePoint last_first{};  // messages of a channel do not overtake each other
    // The receiver's side.
    std::span<std::byte> slot;
    bool expected = false, landed = false, has_kept = false;
    Transport::Arrival landing{}, kept_arrival{};
    std::vector<std::byte> kept;
  };
  struct End {
    TimePoint out_busy{}, in_busy{};
    bool cut = false, lost = false, gone = false, has_events = false;
    std::vector<int> posted;  // indices of paths with a posted message
  };
  struct Event {
    TimePoint at;
    int path = 0, from = 0;
    uint64_t ticket = 0;
  };
  static bool later(const Event& a, const Event& b);

  Path& path(int from, int to, const Channel& channel);
  const Path& path(int from, int to, const Channel& channel) const;
  template <class Visit>
  void each_path_of(int rank, Visit&& visit);
  Result<void> reachable(int rank, int peer) const;
  void take_link(Path& path, TimePoint now);
  void push_event(const Path& path);
  void land(Path& path);
  void fill_slot(Path& path, Transport::Arrival arrival);
  void finish(Path& path);
  Duration time_of(size_t bytes) const;
  double draw(const Path& path, uint64_t which) const;

  int num_ranks_;
  LinkModel links_;
  std::vector<Path> paths_;
  std::vector<End> ends_;
  std::vector<Event> events_;  // a heap; the next event is first
  uint64_t next_ticket_ = 1;
};

}  // namespace hocket
