// The prompts whose pages are to be read, in the order in which they are due: each when computing
// it would have ended if it had begun at once. So a short prompt waits for none of the long ones
// behind it in this order, and a long one not forever, since later ones are due later.
// Thread: any.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "policy/cache/cache_namespace.h"

namespace hocket {

// Pages to read: those of `prompt` from `first` on.
struct ReadTask {
  RequestId request{};  // that waits for them, if there is one
  CacheNamespace name_space;
  std::vector<TokenId> prompt;
  size_t num_whole = 0;  // tokens of its whole pages
  int first = 0;
  int peer = -1;                          // PagesWanted::peer
  bool is_sent = false;                   // a peer computes the prompt: PagesWanted::computes
  int num_cached = 0;                     // pages behind which a model can continue already
  Duration to_compute = Duration::max();  // a source that would take longer is not read
  TimePoint due{};                        // its place in the queue
  TimePoint until = TimePoint::max();     // no request waits for it after this time
  std::function<void()> at_end;           // empty, or to be called when all is read that will be
  std::atomic<bool> given_up{false};
  std::atomic<int64_t> begun_ns{0};  // when its reading began; 0: it has not
};

class ReadQueue {
 public:
  explicit ReadQueue(size_t max_tasks) : max_tasks_(max_tasks) { tasks_.reserve(max_tasks); }

  // Returns false, and leaves the task, if the queue is full or closed.
  [[nodiscard]] bool push(std::shared_ptr<ReadTask>& task) {
    {
      const MutexLock lock(mutex_);
      if (closed_ || tasks_.size() == max_tasks_) return false;
      tasks_.push_back(std::move(task));
    }
    arrived_.notify_one();
    return true;
  }
  // Waits up to `timeout` for a task. Returns null if there is none.
  std::shared_ptr<ReadTask> wait_pop(Duration timeout) {
    MutexLock lock(mutex_);
    arrived_.wait_for(lock, timeout,
                      [&]() HOCKET_REQUIRES(mutex_) { return closed_ || !tasks_.empty(); });
    if (tasks_.empty()) return nullptr;
    const auto next = std::ranges::min_element(tasks_, {}, [](const auto& t) { return t->due; });
    std::shared_ptr<ReadTask> task = std::move(*next);
    tasks_.erase(next);  // those that are due at the same time keep their order
    return task;
  }
  // Refuses further tasks.
  void close() {
    {
      const MutexLock lock(mutex_);
      closed_ = true;
    }
    arrived_.notify_all();
  }
  size_t size() const {
    const MutexLock lock(mutex_);
    return tasks_.size();
  }

 private:
  const size_t max_tasks_;
  mutable Mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::shared_ptr<ReadTask>> tasks_ HOCKET_GUARDED_BY(mutex_);
  bool closed_ HOCKET_GUARDED_BY(mutex_) = false;
};

}  // namespace hocket
