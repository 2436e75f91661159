// Ranks of one process, each on a thread of its own, joined by a link model instead of a network:
// for tests, the simulation and the demo.
//
//   every rank has one link out and one in:  busy = max(now, busy) + bytes / rate
//                                            there = busy + latency (+ jitter, + a stall)
//
// A message exists for its receiver from `there` on. Lanes share the links, as they share a network
// card. In real time the threads sleep; in virtual time the clock stands still while anybody runs
// and jumps to the next event when all wait, so a test of hours takes no time and gives the same
// figures always.
// Thread: each Transport belongs to its rank's thread; the hub is shared and locks inside.
#pragma once

#include <cstdint>
#include <memory>

#include "compute/comm/transport.h"

namespace hocket {

struct LinkModel {
  double bytes_per_s = 0;  // 0: unlimited
  Duration latency{};      // of each message
  Duration jitter{};       // up to so much more, drawn by `seed`
  double drop = 0;         // share of messages that never arrive
  uint64_t seed = 0;
};

class LoopbackHub {
 public:
  enum class Time : uint8_t { real, virtual_time };
  LoopbackHub(int num_ranks, LinkModel links, Time time);
  ~LoopbackHub();

  // The rank's end; once for each rank. Outlived by the hub. In virtual time the clock moves only
  // while every joined rank waits, so a rank that ends must destroy its end.
  std::unique_ptr<Transport> join(int rank);

  // In virtual time: the calling rank computes for so long. In real time: nothing.
  void spend(int rank, Duration duration);
  TimePoint now() const;

  // Faults, from now on.   Thread: any.
  void set_links(LinkModel links);  // of all
  void cut(int rank, bool is_cut);  // its messages are lost in both directions
  void lose(int rank);              // as if its process had died: peers get lost_rank

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
