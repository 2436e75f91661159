// Says for how long work that fails is tried again: for a time from its first failure, and at least
// kMinRetries times, since one try may take longer than that time. Work that succeeds begins again.
#pragma once

#include <algorithm>
#include <chrono>

#include "base/clock.h"

namespace hocket {

class Retries {
 public:
  static constexpr int kMinRetries = 3;
  static constexpr Duration kPause = std::chrono::seconds(1);  // before the next try, at most

  explicit Retries(Duration wait) : wait_(wait) {}

  // Notes a failure. Returns the time that is left for retries; zero: there is none any more.
  Duration failed(TimePoint now) {
    if (num_failures_++ == 0) until_ = now + wait_;
    const Duration fewest = std::max(kMinRetries + 1 - num_failures_, 0) * kPause;
    return std::max<Duration>(until_ - now, fewest);
  }
  void succeeded() { num_failures_ = 0; }

 private:
  const Duration wait_;
  int num_failures_ = 0;
  TimePoint until_{};
};

}  // namespace hocket
