// Says how long a stream pauses whose client reads too slowly. Each pause is twice as long as the
// one before, up to kMaxPause, until the client has read enough.   Thread: one.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace hocket {

class ClientPause {
 public:
  static constexpr Duration kFirst = std::chrono::microseconds(200);
  static constexpr Duration kMaxPause = std::chrono::milliseconds(20);

  // The client has not read enough: begins a pause, and returns its end.
  TimePoint begin(TimePoint now) {
    pause_ = std::clamp(2 * pause_, kFirst, kMaxPause);
    return until_ = now + pause_;
  }
  // The client has read: the next pause is the first again.
  void end() { pause_ = {}; }
  TimePoint until() const { return until_; }

 private:
  Duration pause_{};
  TimePoint until_{};
};

}  // namespace hocket
