#include "base/worker_pool.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <string>

#include "base/check.h"
#include "base/clock.h"
#include "base/processor_time.h"

namespace hocket {
namespace {

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // A refusal (a container's cpuset changed) costs speed, but changes no result.
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace

void flush_denormals() {
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  // DAZ has no macro in the base header: it is bit 6 of MXCSR.
  _mm_setcsr(_mm_getcsr() | 0x0040u);
}

WorkerPool::WorkerPool(Options options)
    : num_workers_(options.num_workers),
      spin_ns_(options.spin_ns),
      counts_time_(options.counts_time) {
  HOCKET_CHECK(num_workers_ >= 1 && static_cast<uint32_t>(num_workers_) <= kInside);
  const auto cpu_of = [&](int worker) {
    return worker < static_cast<int>(options.cpus.size()) ? options.cpus[worker] : -1;
  };
  caller_cpu_ = cpu_of(0);
  flush_denormals();
  for (int worker = 1; worker < num_workers_; ++worker)
    threads_.emplace_back(Thread::Options{.name = "worker" + std::to_string(worker)},
                          [this, worker, cpu = cpu_of(worker)] { serve(worker, cpu); });
}

void WorkerPool::adopt_caller() {
  flush_denormals();
  if (caller_cpu_ >= 0) pin_to(caller_cpu_);
}

WorkerPool::~WorkerPool() {
  stopping_.store(true);
  open_round();
  for (Thread& thread : threads_) thread.join();
}

void WorkerPool::run_erased(int num_tasks, Call call, void* context) {
  if (num_tasks <= 0) return;
  if (num_workers_ == 1 || num_tasks == 1) {
    for (int task = 0; task < num_tasks; ++task) {
      call(context, task, 0);
      call_loop_callback();
    }
    return;
  }
  call_ = call;
  context_ = context;
  num_tasks_ = num_tasks;
  next_task_.store(0, std::memory_order_relaxed);
  struct Round {  // it is closed, too, if a task throws
    explicit Round(WorkerPool& of) : pool(of) { pool.open_round(); }
    ~Round() { pool.close_round(); }
    WorkerPool& pool;
  };
  const Round round(*this);
  work(0);
}

void WorkerPool::open_round() {
  gate_.fetch_add(kOpen, std::memory_order_release);  // it was closed, so the bit becomes 1
  gate_.notify_all();
}

void WorkerPool::close_round() {
  // Adding it again carries into the number of the round.
  uint32_t gate = gate_.fetch_add(kOpen, std::memory_order_acquire);
  for (int spins = 0; (gate & kInside) != 0; ++spins) {
    if (spins < 2'000) {
      _mm_pause();
    } else {
      sched_yield();  // more threads than cores: let the others finish
    }
    gate = gate_.load(std::memory_order_acquire);
  }
}

void WorkerPool::work(int worker) {
  for (int task; (task = next_task_.fetch_add(1, std::memory_order_relaxed)) < num_tasks_;) {
    call_(context_, task, worker);
    if (worker == 0) call_loop_callback();
  }
}

Duration WorkerPool::time_of_others() const {
  HOCKET_CHECK(counts_time_);
  return Duration(ns_of_others_.load());
}

void WorkerPool::call_loop_callback() {
  if (callback_ == nullptr || real_now_ns() < callback_->next_ns_) return;
  callback_->call_(callback_->context_);
  callback_->next_ns_ = real_now_ns() + kMinCallbackPauseNs;
}

WorkerPool::LoopCallback::LoopCallback(WorkerPool& pool, void (*call)(const void*),
                                       const void* context)
    : pool_(pool), call_(call), context_(context), next_ns_(real_now_ns() + kMinCallbackPauseNs) {
  HOCKET_CHECK(pool.callback_ == nullptr);
  pool.callback_ = this;
}

void WorkerPool::serve(int worker, int cpu) {
  flush_denormals();
  if (cpu >= 0) pin_to(cpu);
  uint32_t served = kInside;  // gate_ without kInside in the last round; before the first, no round
  while (true) {
    int64_t deadline = real_now_ns() + spin_ns_;
    uint32_t gate = gate_.load(std::memory_order_relaxed);
    while ((gate & kOpen) == 0 || (gate & ~kInside) == served) {
      if (stopping_.load(std::memory_order_relaxed)) return;
      for (int i = 0; i < 64 && gate_.load(std::memory_order_relaxed) == gate; ++i) _mm_pause();
      if (real_now_ns() > deadline) {
        gate_.wait(gate, std::memory_order_relaxed);
        // Awake, it serves the next loops at once, although it may be late for this one.
        deadline = real_now_ns() + spin_ns_;
      }
      gate = gate_.load(std::memory_order_relaxed);
    }
    gate = gate_.fetch_add(1, std::memory_order_acquire);
    if ((gate & kOpen) != 0) {
      if (stopping_.load(std::memory_order_relaxed)) return;
      served = gate & ~kInside;
      const Duration begin = counts_time_ ? thread_processor_time() : Duration{};
      work(worker);
      if (counts_time_) ns_of_others_ += (thread_processor_time() - begin).count();
    }
    gate_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace hocket
