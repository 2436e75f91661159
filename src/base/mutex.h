// A std::mutex, and its lock in a scope, with the annotations of thread_annotations.h: those of the
// standard library have none, so clang would not see them.
//
//   const MutexLock lock(mutex_);
//
//   if (!mutex_.try_lock()) return;                    // never waits
//   const MutexLock lock(mutex_, std::adopt_lock);
#pragma once

#include <mutex>

#include "base/thread_annotations.h"

namespace hocket {

class HOCKET_CAPABILITY("mutex") Mutex {
 public:
  void lock() HOCKET_ACQUIRE() { mutex_.lock(); }
  void unlock() HOCKET_RELEASE() { mutex_.unlock(); }
  bool try_lock() HOCKET_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

class HOCKET_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HOCKET_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  // Takes over a mutex that is held.
  MutexLock(Mutex& mutex, std::adopt_lock_t held) HOCKET_REQUIRES(mutex)
      : lock_(mutex.mutex_, held) {}
  ~MutexLock() HOCKET_RELEASE() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // Give the mutex back before the end of the scope, and take it again.
  void unlock() HOCKET_RELEASE() { lock_.unlock(); }
  void lock() HOCKET_ACQUIRE() { lock_.lock(); }
  // For the waits of std::condition_variable.
  operator std::unique_lock<std::mutex>&() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace hocket
