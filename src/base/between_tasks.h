// A call that the thread makes between two tasks of a WorkerPool's loop, while others go on with
// the loop: work that would hold them up if it stood between two loops.
//
//   worker 0   task task call task task task call task | next loop
//   worker 1   task task task task task task task task |
//
// Thread: the one that runs the loops.
#pragma once

#include <cstdint>
#include <functional>

#include "base/clock.h"

namespace hocket {

class BetweenTasks {
 public:
  // Makes the call at most once in `every`. It runs no loop. At most one object lives on a thread.
  BetweenTasks(Duration every, std::function<void()> call);
  ~BetweenTasks();
  BetweenTasks(const BetweenTasks&) = delete;
  BetweenTasks& operator=(const BetweenTasks&) = delete;

  // A task of the calling thread is done.
  static void task_done();

 private:
  const int64_t every_ns_;
  const std::function<void()> call_;
  int64_t next_ns_;
};

}  // namespace hocket
