// The compute threads: made once, pinned, and woken for one parallel loop at a time. The calling
// thread (the engine's) is worker 0, so one worker means no other thread at all. Every compute
// thread, the caller included, flushes denormals (FTZ, DAZ): see docs/contracts/arithmetic.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/thread.h"

namespace hocket {

// Sets FTZ and DAZ in the calling thread.
void flush_denormals();

class WorkerPool {
 public:
  struct Options {
    int num_workers = 1;       // caller included
    std::vector<int> cpus;     // worker i is pinned to cpus[i]; empty: not pinned
    int64_t spin_ns = 50'000;  // an idle worker spins this long before it sleeps
    bool counts_time = false;  // for time_of_others(): each worker asks the system twice a loop
  };

  explicit WorkerPool(Options options);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // While it lives, worker 0 calls f between two tasks of a loop, with kMinCallbackPauseNs between
  // calls, so that other work need not wait for the end of a long loop. The other workers continue.
  // f must not run loops. One at a time.   Thread: the owner only.
  class LoopCallback {
   public:
    template <class F>
    LoopCallback(WorkerPool& pool, const F& f)
        : LoopCallback(
              pool, [](const void* context) { (*static_cast<const F*>(context))(); }, &f) {}
    ~LoopCallback() { pool_.callback_ = nullptr; }
    LoopCallback(const LoopCallback&) = delete;
    LoopCallback& operator=(const LoopCallback&) = delete;

   private:
    friend class WorkerPool;
    LoopCallback(WorkerPool& pool, void (*call)(const void*), const void* context);
    WorkerPool& pool_;
    void (*const call_)(const void*);
    const void* const context_;
    int64_t next_ns_;
  };
  static constexpr int64_t kMinCallbackPauseNs = 50'000;

  int size() const { return num_workers_; }
  // Makes the calling thread worker 0 for good and pins it like the others. The thread that
  // constructs the pool may run loops without this call (for example while loading); the engine's
  // thread calls it once.
  void adopt_caller();

  // Runs body(task, worker) once for each task in [0, num_tasks) and returns when all are done.
  // Workers take tasks one by one; worker is in [0, size()). A result never depends on the worker
  // of a task. Allocates nothing. Not reentrant.   Thread: the owner only.
  template <class Body>
  void run(int num_tasks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_erased(
        num_tasks,
        [](void* context, int task, int worker) { (*static_cast<Plain*>(context))(task, worker); },
        const_cast<void*>(static_cast<const void*>(std::addressof(body))));
  }
  // Returns the processor's time that all workers but the caller have used for tasks, without that
  // in which they spun. Precondition: Options::counts_time. Thread: the owner, between loops.
  Duration time_of_others() const;

 private:
  using Call = void (*)(void* context, int task, int worker);
  void run_erased(int num_tasks, Call call, void* context);
  void work(int worker);
  void call_loop_callback();
  void open_round();
  void close_round();
  void serve(int worker, int cpu);

  // One loop is a round. Workers enter a round that is open and leave it when no task is left.
  // Worker 0 closes the round when it finds no task, and waits only for those inside: a worker
  // that the system has not run since (other programs hold its core) delays no loop.
  //
  //   gate_:  number of the round | open: 1 bit (kOpen) | workers inside: 12 bits (kInside)
  static constexpr uint32_t kOpen = 1u << 12;
  static constexpr uint32_t kInside = kOpen - 1;

  const int num_workers_;
  const int64_t spin_ns_;
  const bool counts_time_;
  int caller_cpu_ = -1;
  Call call_ = nullptr;
  void* context_ = nullptr;
  int num_tasks_ = 0;
  LoopCallback* callback_ = nullptr;
  alignas(64) std::atomic<int> next_task_{0};
  alignas(64) std::atomic<uint32_t> gate_{0};
  std::atomic<int64_t> ns_of_others_{0};
  std::atomic<bool> stopping_{false};
  std::vector<Thread> threads_;
};

}  // namespace hocket
