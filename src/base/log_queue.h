// Carries finished lines to stderr. Internal to log.h.
//
//   put() -> write(2)                            before start() and after stop()
//   put() -> ring ... thread `log` -> write(2)   from start() to stop()
//
// The ring takes lines while it has room; other lines are lost and counted. Its lock is never held
// during write(2), so a reader of stderr that pauses stops only the thread `log`. Thread: any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace hocket::log {

inline constexpr size_t kQueueBytes = 1 << 20;

class Queue {
 public:
  void put(std::string_view line);
  void start();
  // Ends the thread when all lines are written. After `patience` it leaves the thread alone, and
  // every later line is lost.
  void stop(Duration patience);
  // Waits until all lines are written. Returns false if some are not after `patience`.
  bool flush(Duration patience);
  int64_t num_lost() const { return num_lost_; }

 private:
  enum class Mode : uint8_t { direct, queued, abandoned };
  void run(int turn, int64_t num_reported);
  std::string_view take(std::span<char> piece) HOCKET_REQUIRES(mutex_);
  bool wait_written(MutexLock& lock, Duration patience) HOCKET_REQUIRES(mutex_);
  static std::string_view write_out(std::string_view lines);

  Mutex mutex_;
  std::condition_variable arrived_, written_;
  Mode mode_ HOCKET_GUARDED_BY(mutex_) = Mode::direct;
  // Counts start() and stop(): a thread that began with another value ends.
  int turn_ HOCKET_GUARDED_BY(mutex_) = 0;
  const std::unique_ptr<char[]> ring_ HOCKET_GUARDED_BY(mutex_) =
      std::make_unique_for_overwrite<char[]>(kQueueBytes);
  size_t first_ HOCKET_GUARDED_BY(mutex_) = 0;
  size_t num_bytes_ HOCKET_GUARDED_BY(mutex_) = 0;
  int64_t num_writing_ HOCKET_GUARDED_BY(mutex_) = 0;  // lines that the thread has taken
  Thread thread_;
  std::atomic<int64_t> num_lost_{0};
};

// Returns the queue; it is never destroyed, since a thread may log while the process ends.
Queue& queue();

}  // namespace hocket::log
