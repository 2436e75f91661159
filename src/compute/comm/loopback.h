// Connects the ranks of one process, each on its own thread, by a link model instead of a network:
// for tests, the simulation and the demo.
//
//   out link of the sender    begin = max(now, busy),           busy = begin + bytes / rate
//   in link of the receiver   first = max(begin + latency + jitter, busy)
//                             there = busy = first + bytes / rate
//
// A message exists for its receiver from `there` on. Until then its bytes are the sender's memory,
// so a sender that changes them too early is found out. Lanes share the links, as they share a
// network card. An in link serves the message that reaches it first, of several at once that of the
// lowest rank.
//
// In real time the threads sleep. In virtual time the clock does not move while any rank runs and
// jumps to the next event when all wait (in Transport::wait or spend). So a test of hours takes no
// time and always gives the same times to the nanosecond: sends and faults of one instant take
// effect when all ranks wait, in the order of the ranks. A rank that polls without waiting stops
// the clock.
//
// Thread: each Transport belongs to its rank's thread; the hub is shared and locks inside.
// After warm-up a message allocates nothing.
#pragma once

#include <cstdint>
#include <memory>

#include "compute/comm/transport.h"

namespace hocket {

struct LinkModel {
  double bytes_per_s = 0;  // 0: unlimited
  // The bytes behind a message's head count this many times, so that small messages model large
  // ones.
  double bytes_scale = 1;
  Duration latency{};  // added to each message
  Duration jitter{};   // up to this much more for each message, drawn by `seed`
  double drop = 0;     // share of messages that never arrive
  uint64_t seed = 0;
};

class LoopbackHub {
 public:
  enum class Time : uint8_t { real, virtual_time };
  LoopbackHub(int num_ranks, LinkModel links, Time time);
  ~LoopbackHub();

  // Returns the rank's end; the hub outlives it. In virtual time the clock only moves once every
  // rank has joined, and only while all of them wait, so a rank that ends must destroy its end. Its
  // sent messages still arrive; a rank that waits for more gets lost_rank. It may join again, like
  // a restarted process.
  std::unique_ptr<Transport> join(int rank);

  // In virtual time the calling rank computes for `duration`; in real time this does nothing.
  void spend(int rank, Duration duration);
  TimePoint now() const;

  // Faults that begin with the call.   Thread: any.
  void set_links(LinkModel links);  // all links, for messages that reach a link later
  void cut(int rank, bool is_cut);  // its messages are lost, those under way too
  // Its links carry nothing for this time, and lose nothing.
  void stall(int rank, Duration how_long);
  void lose(int rank);  // peers get lost_rank, as if its process had died

 private:
  struct State;
  class End;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
