// A bounded queue between threads: many writers, and one reader or several, each item for one of
// them. Writers never block; push() returns false when it is full. Storage is one ring made at
// construction, so neither side allocates (beyond what moving a T does).
#pragma once

#include <chrono>
#include <condition_variable>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"

namespace hocket {

template <class T>
class Mailbox {
 public:
  explicit Mailbox(size_t capacity) : capacity_(capacity), ring_(capacity) {
    HOCKET_CHECK(capacity > 0u);
  }

  // Moves from `item`. Returns false and leaves `item` untouched when full or closed, so that it
  // can be tried again.   Thread: any.
  [[nodiscard]] bool push(T& item) {
    {
      MutexLock lock(mutex_);
      if (closed_ || count_ == capacity_) return false;
      ring_[(head_ + count_) % capacity_].emplace(std::move(item));
      ++count_;
    }
    arrived_.notify_one();
    return true;
  }
  [[nodiscard]] bool push(T&& item) { return push(item); }

  // Returns the oldest item, if any; never waits.   Thread: a reader.
  std::optional<T> pop() {
    MutexLock lock(mutex_);
    return take();
  }

  // Waits up to `timeout` for the oldest item. Returns nullopt on timeout, on wake(), or when
  // closed and empty.   Thread: a reader.
  template <class Rep, class Period>
  std::optional<T> wait_pop(std::chrono::duration<Rep, Period> timeout) {
    MutexLock lock(mutex_);
    arrived_.wait_for(lock, timeout,
                      [&]() HOCKET_REQUIRES(mutex_) { return count_ > 0 || closed_ || woken_; });
    woken_ = false;
    return take();
  }

  // Makes one waiting reader return.   Thread: any.
  void wake() {
    {
      MutexLock lock(mutex_);
      woken_ = true;
    }
    arrived_.notify_one();
  }

  // Refuses further pushes; items inside can still be popped.   Thread: any.
  void close() {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_all();
  }

  bool closed() const {
    MutexLock lock(mutex_);
    return closed_;
  }
  size_t size() const {
    MutexLock lock(mutex_);
    return count_;
  }
  size_t capacity() const { return capacity_; }

 private:
  std::optional<T> take() HOCKET_REQUIRES(mutex_) {
    if (count_ == 0) return std::nullopt;
    std::optional<T> item = std::move(ring_[head_]);
    ring_[head_].reset();
    head_ = (head_ + 1) % capacity_;
    --count_;
    return item;
  }

  const size_t capacity_;
  mutable Mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::optional<T>> ring_ HOCKET_GUARDED_BY(mutex_);
  size_t head_ HOCKET_GUARDED_BY(mutex_) = 0;
  size_t count_ HOCKET_GUARDED_BY(mutex_) = 0;
  bool closed_ HOCKET_GUARDED_BY(mutex_) = false;
  bool woken_ HOCKET_GUARDED_BY(mutex_) = false;
};

}  // namespace hocket
