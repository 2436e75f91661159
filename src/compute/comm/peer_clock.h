// Finds when a peer pushed a message, by this rank's clock, although clocks of ranks differ. It
// uses only message times, as NTP does: of the last messages the quickest in each direction count.
// They are assumed to travel equally long, so half of their difference is that of the clocks.
//
//   least here = least travel + (our clock - theirs)     of arrival here - push there
//   least there = least travel - (our clock - theirs)    which the peer's messages say
//   our clock - theirs = (least here - least there) / 2
//
// The error is half of the difference between the travel times of the quickest messages, plus the
// drift of the clocks within a window: 2 us for travel times of 20 and 24 us, 50 us at 10 ppm.
// Pure; the integers may have any value, because a peer sends them.   Source:
// docs/contracts/expert_parallel.md, "Heads".
#pragma once

#include <cstdint>
#include <limits>

#include "base/clock.h"

namespace hocket {

class PeerClock {
 public:
  // Values are remembered for one to two windows.
  static constexpr Duration kWindow = std::chrono::seconds(5);
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::min();

  // Notes a message of the peer: its arrival by our clock, its push by the peer's clock [ns], and
  // the peer's min_seen() at that time [ns].
  void heard(TimePoint arrived, int64_t pushed_ns, int64_t min_there);
  // Returns the smallest (arrival - push) [ns] of the last messages, to be sent to the peer; kNone
  // if there were none.
  int64_t min_seen(TimePoint now) const;
  // Returns when the last message was pushed, by our clock, never later than its arrival. Until the
  // peer has sent its min_seen(), the latest possible time is returned.
  TimePoint pushed() const { return pushed_; }

 private:
  struct Window {
    TimePoint begin{};
    int64_t min = kNone;
  };
  Window now_, before_;
  TimePoint pushed_{};
};

}  // namespace hocket
