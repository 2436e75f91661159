// The clock of an engine that takes turns with others: it stands still while they run, so that the
// engine does not take their time for its own.
#pragma once

#include <atomic>

#include "base/clock.h"

namespace hocket {

// Begins paused. Thread: any; pause() and resume() by the one that steps the engine, in turn.
class PausedClock final : public Clock {
 public:
  TimePoint now() const override {
    const int64_t since = running_since_ns_.load();
    return TimePoint(Duration(ran_ns_.load() + (since > 0 ? real_now_ns() - since : 0)));
  }
  void resume() { running_since_ns_ = real_now_ns(); }
  void pause() {
    const TimePoint at = now();
    running_since_ns_ = 0;
    ran_ns_ = at.time_since_epoch().count();
  }

 private:
  std::atomic<int64_t> ran_ns_{0}, running_since_ns_{0};
};

}  // namespace hocket
