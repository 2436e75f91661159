// Limits how many bytes of pages that were read a step takes in. They are copied to the pool while
// no step is in flight, so running requests wait meanwhile. The time is predicted from the measured
// speed of copying, since a page cannot be broken off. Thread: one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace hocket {

enum class EngineLoad : uint8_t {
  running,  // requests run, here or on other ranks, and wait meanwhile
  idle
};

class TakePace {
 public:
  // The share of the last step's time that is given to it, and the time that is given in any case.
  static constexpr double kMaxShare = 0.1;
  static constexpr Duration kMinTime = std::chrono::milliseconds(1);
  // The time if no request runs; after it the engine looks again for something to compute.
  static constexpr Duration kIdleTime = std::chrono::milliseconds(20);

  void note_step(Duration took) { last_step_ = took; }
  // Notes the time that copying some bytes took. Newer copies count more.
  void note(int64_t num_bytes, Duration took) {
    if (num_bytes <= 0) return;
    const double newest = seconds_of_byte_ == 0 ? 1 : kNewestShare;
    const Duration time = std::max(took, Duration(1));
    const double seconds = to_seconds(time) / static_cast<double>(num_bytes);
    seconds_of_byte_ += newest * (seconds - seconds_of_byte_);
  }
  // 0 before the first note(): one page is to be measured.
  int64_t max_bytes(EngineLoad load) const {
    if (seconds_of_byte_ == 0) return 0;
    const Duration share = from_seconds(kMaxShare * to_seconds(last_step_));
    const Duration time = load == EngineLoad::idle ? kIdleTime : std::max(kMinTime, share);
    const double bytes = to_seconds(time) / seconds_of_byte_;
    return static_cast<int64_t>(std::min(bytes, static_cast<double>(kMaxBytes)));
  }

 private:
  static constexpr double kNewestShare = 0.3;
  static constexpr int64_t kMaxBytes = int64_t{1} << 50;  // any number of pages

  Duration last_step_{};
  double seconds_of_byte_ = 0;
};

}  // namespace hocket
