// When a peer pushed a message, by our clock, though nobody's clocks agree: found from message
// times alone, as NTP finds it. Of messages that came lately the quickest in each direction count;
// they are taken to have travelled equally long, so what they differ by is what the clocks differ
// by.
//
//   least here = least travel + (our clock - theirs)     of arrival here - push there
//   least there = least travel - (our clock - theirs)    told by the peer in its messages
//   our clock - theirs = (least here - least there) / 2
//
// Wrong by half of what the quickest messages differ by, and by how far the clocks drift within a
// window: 2 us where quick ones travel 20 and 24 us, 50 us at 10 ppm.
// Pure; all integers may be anything, for a peer says them.   Source:
// docs/contracts/expert_parallel.md, "Heads".
#pragma once

#include <cstdint>
#include <limits>

#include "base/clock.h"

namespace hocket {

class PeerClock {
 public:
  static constexpr Duration kWindow = std::chrono::seconds(5);  // remembered for one to two of them
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::min();

  // A message of the peer: when it came by our clock, when it was pushed by the peer's, and what
  // the peer's least() was then. Both in nanoseconds.
  void heard(TimePoint arrived, int64_t pushed_ns, int64_t least_there);
  // For the messages to the peer: the least (arrival - push) of what came lately; kNone if nothing.
  int64_t least(TimePoint now) const;
  // When the message that was heard last was pushed, by our clock: never after it came. As late as
  // can be while the peer has said nothing about our messages.
  TimePoint pushed() const { return pushed_; }

 private:
  struct Window {
    TimePoint begin{};
    int64_t least = kNone;
  };
  Window now_, before_;
  TimePoint pushed_{};
};

}  // namespace hocket
