#include "base/worker_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#include <xmmintrin.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <new>
#include <thread>
#include <vector>

#include "base/processor_time.h"

namespace hocket {
namespace {

void run_and_count(WorkerPool& pool, int num_tasks) {
  std::vector<std::atomic<int>> runs(num_tasks);
  std::atomic<bool> worker_in_range = true;
  pool.run(num_tasks, [&](int task, int worker) {
    ++runs[task];
    if (worker < 0 || worker >= pool.size()) worker_in_range = false;
  });
  for (int task = 0; task < num_tasks; ++task) ASSERT_EQ(runs[task], 1) << "task " << task;
  EXPECT_TRUE(worker_in_range);
}

TEST(WorkerPool, OneWorkerIsTheCallerAlone) {
  WorkerPool pool({.num_workers = 1, .cpus = {}});
  const auto caller = std::this_thread::get_id();
  int sum = 0;  // not atomic: no other thread may touch it
  pool.run(100, [&](int task, int worker) {
    EXPECT_EQ(worker, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
    sum += task;
  });
  EXPECT_EQ(sum, 4950);
}

TEST(WorkerPool, RunsEveryTaskOnceOverManyRounds) {
  WorkerPool pool({.num_workers = 2, .cpus = {}});
  for (int round = 0; round < 2000; ++round) run_and_count(pool, round % 7);
}

TEST(WorkerPool, MoreWorkersThanCores) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  WorkerPool pool({.num_workers = 3 * cores + 1, .cpus = {}, .spin_ns = 1000});
  for (int round = 0; round < 200; ++round) run_and_count(pool, 64);
}

TEST(WorkerPool, SleepingWorkersWakeAgain) {
  WorkerPool pool({.num_workers = 3, .cpus = {}, .spin_ns = 0});
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    run_and_count(pool, 16);
  }
}

// The others spin for nearly all of the 200 ms between the loops.
TEST(WorkerPool, TheTimeOfTheOthersIsThatOfTheirTasks) {
  WorkerPool pool({.num_workers = 3, .spin_ns = 1'000'000'000, .counts_time = true});
  std::atomic<int> tasks_of_others = 0;
  const Duration kTask = std::chrono::milliseconds(5), kLoops = std::chrono::milliseconds(200);
  pool.run(60, [&](int, int worker) {
    if (worker > 0) ++tasks_of_others;
    const Duration begin = thread_processor_time();
    while (thread_processor_time() - begin < kTask) continue;
  });
  EXPECT_GT(tasks_of_others, 0);
  const Duration used = pool.time_of_others();
  EXPECT_GE(used, tasks_of_others.load() * kTask);
  const TimePoint end = RealClock().now() + kLoops;
  while (RealClock().now() < end) {
    pool.run(3, [](int, int) {});
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LT(pool.time_of_others() - used, kLoops / 20);
}

TEST(WorkerPool, NoTasksCallNothing) {
  WorkerPool pool({.num_workers = 3, .cpus = {}});
  pool.run(0, [](int, int) { FAIL() << "called"; });
  run_and_count(pool, 5);
  pool.run(0, [](int, int) { FAIL() << "called"; });
}

TEST(WorkerPool, WhatTasksWroteIsSeenByTheCaller) {
  WorkerPool pool({.num_workers = 4, .cpus = {}});
  std::vector<int> plain(1000, 0);  // not atomic: run() itself must order the writes
  for (int round = 1; round <= 200; ++round) {
    pool.run(static_cast<int>(plain.size()), [&](int task, int) { plain[task] += round; });
    ASSERT_EQ(plain[round], round * (round + 1) / 2);
  }
}

// A task that waits for another one shows that two workers really run at once.
TEST(WorkerPool, TasksRunAtTheSameTime) {
  WorkerPool pool({.num_workers = 2, .cpus = {}});
  std::atomic<int> arrived = 0;
  pool.run(2, [&](int, int) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

std::atomic<bool> handler_began = false, handler_may_end = false;

// A signal handler that waits holds a worker as a busy core does: it is in no task, and nothing
// that the pool does makes it run.
TEST(WorkerPool, ALoopDoesNotWaitForAWorkerThatDoesNotRun) {
  WorkerPool pool({.num_workers = 2, .cpus = {}});
  pthread_t worker_thread = pthread_self();
  std::atomic<int> arrived = 0;
  pool.run(2, [&](int, int worker) {
    if (worker == 1) worker_thread = pthread_self();
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  struct sigaction hold = {}, before;
  hold.sa_handler = [](int) {
    handler_began = true;
    while (!handler_may_end) usleep(100);
  };
  ASSERT_EQ(sigaction(SIGUSR1, &hold, &before), 0);
  ASSERT_EQ(pthread_kill(worker_thread, SIGUSR1), 0);
  while (!handler_began) std::this_thread::yield();
  for (int round = 0; round < 100; ++round) run_and_count(pool, 16);
  handler_may_end = true;
  for (int round = 0; round < 100; ++round) run_and_count(pool, 16);
  ASSERT_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
}

TEST(WorkerPool, ATaskThatThrowsEndsItsLoop) {
  WorkerPool pool({.num_workers = 2, .cpus = {}});
  EXPECT_THROW(pool.run(64,
                        [](int, int worker) {
                          if (worker == 0) throw std::bad_alloc();
                        }),
               std::bad_alloc);
  for (int round = 0; round < 100; ++round) run_and_count(pool, 16);
}

TEST(WorkerPool, EveryWorkerFlushesDenormals) {
  constexpr int kWorkers = 4;
  WorkerPool pool({.num_workers = kWorkers, .cpus = {}});
  std::vector<float> flushed(kWorkers, 1.0f);
  std::vector<uint32_t> modes(kWorkers, 0);
  std::atomic<int> arrived = 0;
  pool.run(kWorkers, [&](int, int worker) {
    volatile float tiny = 1e-30f, small = 1e-10f, denormal = 1e-40f;
    flushed[worker] = tiny * small + denormal * 1.0f;
    modes[worker] = _mm_getcsr();
    ++arrived;
    while (arrived < kWorkers) std::this_thread::yield();  // makes each worker take one task
  });
  for (int worker = 0; worker < kWorkers; ++worker) {
    EXPECT_EQ(flushed[worker], 0.0f) << "worker " << worker;
    EXPECT_EQ(modes[worker] & 0x8040u, 0x8040u) << "worker " << worker;
  }
}

TEST(WorkerPool, WorkerZeroCallsTheLoopCallbackBetweenTasks) {
  const std::thread::id owner = std::this_thread::get_id();
  for (const int num_workers : {1, 2}) {
    WorkerPool pool({.num_workers = num_workers});
    int played = 0;
    bool is_in_task = false;
    const auto play = [&] {
      EXPECT_EQ(std::this_thread::get_id(), owner);
      EXPECT_FALSE(is_in_task);
      ++played;
    };
    const auto run_until = [&](auto done) {
      for (int round = 0; round < 10'000 && !done(); ++round)
        pool.run(4, [&](int, int worker) {
          if (worker == 0) is_in_task = true;
          std::this_thread::sleep_for(std::chrono::microseconds(50));
          if (worker == 0) is_in_task = false;
        });
    };
    {
      const WorkerPool::LoopCallback callback(pool, play);
      run_until([&] { return played >= 3; });
      EXPECT_GE(played, 3);
    }
    const int before = played;
    int rounds = 0;
    run_until([&] { return ++rounds > 20; });
    EXPECT_EQ(played, before);
  }
}

bool pinned_to(int cpu) {
  cpu_set_t now;
  if (sched_getaffinity(0, sizeof now, &now) != 0) return false;
  return CPU_COUNT(&now) == 1 && CPU_ISSET(cpu, &now);
}

TEST(WorkerPool, PinsItsWorkersAndTheThreadThatItAdopts) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;
  WorkerPool pool({.num_workers = 2, .cpus = {cpu, cpu}});
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));  // the thread that makes a pool is not pinned

  std::thread engine([&] {
    pool.adopt_caller();
    EXPECT_EQ(_mm_getcsr() & 0x8040u, 0x8040u);
    std::atomic<int> arrived = 0;
    pool.run(2, [&](int, int worker) {
      EXPECT_TRUE(pinned_to(cpu)) << "worker " << worker;
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
  });
  engine.join();
}

}  // namespace
}  // namespace hocket
