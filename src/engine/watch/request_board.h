// What the requests of a rank are at, for who watches: looked up after a step, ten times a second
// at most, and only while somebody asks. While nobody does, note() is one load.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

class RequestBoard {
 public:
  static constexpr size_t kMostRows = 256;
  static constexpr Duration kPeriod = std::chrono::milliseconds(100);
  static constexpr Duration kInterest = std::chrono::seconds(5);  // of who asked once

  RequestBoard() : rows_(kMostRows) {}

  // After a step. Allocates nothing, waits for nobody.   Thread: engine.
  void note(const Scheduler& scheduler, TimePoint now);
  // Nothing runs any more: now or never.   Thread: engine.
  void note_rest(const Scheduler& scheduler, TimePoint now);

  // As of the last note, none where that is too old; and notes are taken for a while from now on.
  // Thread: any.
  std::vector<RequestGlance> look(TimePoint now);

 private:
  bool is_watched(TimePoint now) const {
    return now.time_since_epoch().count() < watched_until_.load(std::memory_order_relaxed);
  }
  void write(const Scheduler& scheduler, TimePoint now);

  std::atomic<int64_t> watched_until_{INT64_MIN};  // ns of the clock
  TimePoint last_{};                               // of the engine's thread
  std::mutex mutex_;
  // Under mutex_.
  std::vector<RequestGlance> rows_;
  size_t num_rows_ = 0;
  TimePoint noted_{};
};

}  // namespace hocket
