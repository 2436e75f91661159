#include "compute/kernels/neighbour_tasks.h"

#include <gtest/gtest.h>

#include <vector>

namespace hocket {
namespace {

TEST(NeighbourTasks, ARunIsTakenInOrderThenTheLongestFromItsEnd) {
  NeighbourTasks tasks(12, 3);  // 0-3, 4-7, 8-11
  EXPECT_EQ(tasks.take(2), 8);
  EXPECT_EQ(tasks.take(2), 9);
  EXPECT_EQ(tasks.take(1), 4);
  for (int task : {0, 1, 2, 3}) EXPECT_EQ(tasks.take(0), task);
  EXPECT_EQ(tasks.take(0), 7);
  for (int task : {10, 11}) EXPECT_EQ(tasks.take(2), task);
  for (int task : {6, 5}) EXPECT_EQ(tasks.take(2), task);
  EXPECT_EQ(tasks.take(1), -1);
}

TEST(NeighbourTasks, FewerTasksThanRuns) {
  NeighbourTasks tasks(1, 4);
  EXPECT_EQ(tasks.take(0), 0);
  for (int run = 0; run < 4; ++run) EXPECT_EQ(tasks.take(run), -1);
}

TEST(NeighbourTasks, EachTaskRunsOnceByAnyNumberOfWorkers) {
  for (int num_workers : {1, 2, 3, NeighbourTasks::kMaxRuns + 2}) {
    WorkerPool workers({.num_workers = num_workers, .cpus = {}, .spin_ns = 1000});
    for (int num_tasks : {0, 1, 2, 5, 64, 500}) {
      std::vector<std::atomic<int>> runs(num_tasks);
      run_neighbours(workers, num_tasks, [&](int task, int worker) {
        EXPECT_TRUE(worker >= 0 && worker < num_workers);
        ++runs[task];
      });
      for (int task = 0; task < num_tasks; ++task) EXPECT_EQ(runs[task], 1) << task;
    }
  }
}

}  // namespace
}  // namespace hocket
