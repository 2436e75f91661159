// Lets one line of a kind into the log in a while, and counts those that it keeps out, so that a
// client that causes them cannot fill the log.   Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"

namespace hocket {

class LogLimit {
 public:
  explicit LogLimit(Duration apart) : apart_(apart) {}
  // Returns how many lines were kept out since the last one; nullopt: this one is, too.
  std::optional<uint64_t> admit(TimePoint now) {
    const MutexLock lock(mutex_);
    if (now < next_) {
      ++num_kept_out_;
      return std::nullopt;
    }
    next_ = now + apart_;
    return std::exchange(num_kept_out_, 0);
  }

 private:
  const Duration apart_;
  Mutex mutex_;
  TimePoint next_ HOCKET_GUARDED_BY(mutex_){};
  uint64_t num_kept_out_ HOCKET_GUARDED_BY(mutex_) = 0;
};

}  // namespace hocket
