// Deals out tasks whose neighbours read neighbouring memory: each worker has a run of tasks, so it
// reads one stream. A worker that has finished its run takes the last task of the longest run, so
// tasks may be small and all workers end together.
//
//   worker 0 takes 0 1 2 3 4 5, its run, and then 11 10 ... from the end of the other run
//   worker 1 takes 6 7 8 9 ...
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "base/check.h"
#include "base/worker_pool.h"

namespace hocket {

class NeighbourTasks {
 public:
  static constexpr int kMaxRuns = 64;

  NeighbourTasks(int num_tasks, int num_runs) : num_runs_(num_runs) {
    HOCKET_CHECK(num_runs >= 1 && num_runs <= kMaxRuns);
    for (int64_t run = 0; run < num_runs; ++run) {
      const auto begin = static_cast<uint64_t>(run * num_tasks / num_runs);
      const auto end = static_cast<uint64_t>((run + 1) * num_tasks / num_runs);
      runs_[run].tasks.store(end << 32 | begin, std::memory_order_relaxed);
    }
  }

  // Returns the next task of `run`, else one of another; -1 when none is left.   Thread: any.
  int take(int run) {
    std::atomic<uint64_t>& own = runs_[run].tasks;
    uint64_t tasks = own.load(std::memory_order_relaxed);
    while (left_in(tasks) > 0)
      if (own.compare_exchange_weak(tasks, tasks + 1, std::memory_order_relaxed))
        return static_cast<int>(tasks & kLowHalf);
    return take_last();
  }

 private:
  // The tasks [low half, high half) that are left in a run.
  struct alignas(64) Run {
    std::atomic<uint64_t> tasks;
  };
  static constexpr uint64_t kLowHalf = 0xffffffff;
  static int left_in(uint64_t tasks) {
    return static_cast<int>(tasks >> 32) - static_cast<int>(tasks & kLowHalf);
  }

  int take_last() {
    while (true) {
      std::atomic<uint64_t>* longest = nullptr;
      uint64_t most = 0;
      for (int run = 0; run < num_runs_; ++run) {
        const uint64_t tasks = runs_[run].tasks.load(std::memory_order_relaxed);
        if (left_in(tasks) <= left_in(most)) continue;
        longest = &runs_[run].tasks;
        most = tasks;
      }
      if (longest == nullptr) return -1;
      if (longest->compare_exchange_strong(most, most - (uint64_t{1} << 32),
                                           std::memory_order_relaxed))
        return static_cast<int>(most >> 32) - 1;
    }
  }

  const int num_runs_;
  std::array<Run, kMaxRuns> runs_;
};

// Calls body(task, worker) once for each task in [0, num_tasks), as WorkerPool::run does.
template <class Body>
void run_neighbours(WorkerPool& workers, int num_tasks, Body&& body) {
  const int num_shares = std::min(workers.size(), num_tasks);
  if (num_shares < 1) return;
  const int num_runs = std::min(num_shares, NeighbourTasks::kMaxRuns);
  NeighbourTasks tasks(num_tasks, num_runs);
  workers.run(num_shares, [&](int share, int worker) {
    for (int task; (task = tasks.take(share % num_runs)) >= 0;) body(task, worker);
  });
}

}  // namespace hocket
