// Ranks of one process, each on a thread of its own, joined by a link model instead of a network:
// for tests, the simulation and the demo.
//
//   out link of the sender    begin = max(now, busy),           busy = begin + bytes / rate
//   in link of the receiver   first = max(begin + latency + jitter, busy)
//                             there = busy = first + bytes / rate
//
// A message exists for its receiver from `there` on; until then its bytes are the sender's, so a
// sender that changes them too early is found out. Lanes share the links, as they share a network
// card. Who reaches an in link first is served first, of equals the lower rank.
// In real time the threads sleep. In virtual time the clock stands still while anybody runs and
// jumps to the next event when all wait (in Transport::wait or spend), so a test of hours takes no
// time and gives the same figures to the nanosecond always: what is sent, and what breaks, at one
// instant takes effect when all wait, in the order of the ranks. Who polls without waiting stops
// the clock.
// Thread: each Transport belongs to its rank's thread; the hub is shared and locks inside.
// After warm-up a message allocates nothing.
#pragma once

#include <cstdint>
#include <memory>

#include "compute/comm/transport.h"

namespace hocket {

struct LinkModel {
  double bytes_per_s = 0;  // 0: unlimited
  // What stands behind a message's head counts as so many times its bytes: large messages are
  // modelled with small ones.
  double bytes_scale = 1;
  Duration latency{};  // of each message
  Duration jitter{};   // up to so much more, drawn by `seed`
  double drop = 0;     // share of messages that never arrive
  uint64_t seed = 0;
};

class LoopbackHub {
 public:
  enum class Time : uint8_t { real, virtual_time };
  LoopbackHub(int num_ranks, LinkModel links, Time time);
  ~LoopbackHub();

  // The rank's end. Outlived by the hub. In virtual time the clock moves once every rank has
  // joined, and only while all that did wait, so a rank that ends must destroy its end: what it
  // sent still arrives, whoever waits for more gets lost_rank. It may join again, as a restarted
  // process.
  std::unique_ptr<Transport> join(int rank);

  // In virtual time: the calling rank computes for so long. In real time: nothing.
  void spend(int rank, Duration duration);
  TimePoint now() const;

  // Faults, from now on.   Thread: any.
  void set_links(LinkModel links);          // of all; for messages that reach a link from now on
  void cut(int rank, bool is_cut);          // its messages are lost, those under way too
  void stall(int rank, Duration how_long);  // its links carry nothing for so long, and lose nothing
  void lose(int rank);                      // as if its process had died: peers get lost_rank

 private:
  struct State;
  class End;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
