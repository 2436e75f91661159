#include "engine/balance/loading_threads.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/processor_time.h"

namespace hocket {
namespace {

// Computes until this thread has used 5 ms of a processor.
void use_time() {
  const Duration begin = thread_processor_time();
  while (thread_processor_time() - begin < std::chrono::milliseconds(5)) continue;
}

TEST(LoadingThreads, TheTimeOfTheOthersIsThatOfAllButTheCaller) {
  LoadingThreads threads(3, {});
  threads.adopt_caller();
  const Duration before = threads.time_of_others();
  std::atomic<int> tasks_of_others = 0;
  threads.pool().run(100, [&](int, int worker) {
    if (worker > 0) ++tasks_of_others;
    use_time();
  });
  EXPECT_GT(tasks_of_others, 0);
  EXPECT_GE(threads.time_of_others() - before,
            tasks_of_others.load() * std::chrono::milliseconds(5));
}

TEST(LoadingThreads, ACallerAloneHasNoOthers) {
  LoadingThreads threads(1, {});
  threads.adopt_caller();
  int tasks = 0;
  threads.pool().run(3, [&](int, int worker) {
    EXPECT_EQ(worker, 0);
    ++tasks;
  });
  EXPECT_EQ(tasks, 3);
  EXPECT_EQ(threads.time_of_others(), Duration{});
}

}  // namespace
}  // namespace hocket
