// The progress of a rank's requests, for viewers: copied after a step, at most ten times a second,
// and only while a viewer asks. Without viewers note() is one load.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

class RequestBoard {
 public:
  static constexpr size_t kMaxRows = 256;
  static constexpr Duration kPeriod = std::chrono::milliseconds(100);
  // For this time after a snapshot() steps are noted.
  static constexpr Duration kInterest = std::chrono::seconds(5);

  RequestBoard() : rows_(kMaxRows) {}

  // Copies the requests after a step. Allocates nothing, blocks on no lock. Thread: engine.
  void note(const Scheduler& scheduler, TimePoint now);
  // Copies at once, without kPeriod, because no step follows. Thread: engine.
  void note_idle(const Scheduler& scheduler, TimePoint now);

  // Returns the requests as of the last note (none if that is too old); steps of the next kInterest
  // are noted. Thread: any.
  std::vector<RequestSnapshot> snapshot(TimePoint now);

 private:
  bool is_watched(TimePoint now) const {
    return now.time_since_epoch().count() < watched_until_.load(std::memory_order_relaxed);
  }
  void write(const Scheduler& scheduler, TimePoint now);

  std::atomic<int64_t> watched_until_{INT64_MIN};  // ns of the clock
  TimePoint last_{};                               // touched by the engine's thread only
  Mutex mutex_;
  std::vector<RequestSnapshot> rows_ HOCKET_GUARDED_BY(mutex_);
  size_t num_rows_ HOCKET_GUARDED_BY(mutex_) = 0;
  TimePoint noted_ HOCKET_GUARDED_BY(mutex_){};
};

}  // namespace hocket
