#include "server/generation/task_pool.h"

#include <gmock/gmock.h>

#include <atomic>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>

namespace hocket {
namespace {

// The first task ends only when another task has run, on a pool of one thread.
TEST(TaskPool, ALongTaskMakesWayForOthers) {
  std::atomic<bool> begun = false, over = false;
  TaskPool pool({.name = "test"});
  ASSERT_TRUE(pool.push([&] {
    begun = true;
    while (!over) TaskPool::yield_turn();
  }));
  while (!begun) std::this_thread::yield();
  ASSERT_TRUE(pool.push([&] { over = true; }));
  while (!over) std::this_thread::yield();
}

TEST(TaskPool, SoDoesATaskThatWasMadeWayFor) {
  std::atomic<bool> begun = false, over = false, ended = false, in_time = false;
  TaskPool pool({.name = "test"});
  ASSERT_TRUE(pool.push([&] {
    begun = true;
    while (!ended) TaskPool::yield_turn();
  }));
  while (!begun) std::this_thread::yield();
  ASSERT_TRUE(pool.push([&] {
    ASSERT_TRUE(pool.push([&] { over = true; }));
    const TimePoint patience = RealClock().now() + std::chrono::seconds(3);
    while (!over && RealClock().now() < patience) TaskPool::yield_turn();
    in_time = over.load();
    ended = true;
  }));
  while (!ended) std::this_thread::yield();
  EXPECT_TRUE(in_time);
}

TEST(TaskPool, ElsewhereNobodyWaits) {
  TaskPool::yield_turn();
}

// A pool of one thread, which a task holds until release().
class HeldPool {
 public:
  explicit HeldPool(TaskPool::Options options = {.name = "test"})
      : pool_(std::make_unique<TaskPool>(options)) {
    std::atomic<bool> begun = false;
    EXPECT_TRUE(pool_->push([&] {
      begun = true;
      held_.wait();
    }));
    while (!begun) std::this_thread::yield();
  }
  ~HeldPool() {
    if (pool_ != nullptr) release();
  }
  Result<void> push(uint64_t client) {
    return pool_->push([this, client] { done_.push_back(client); }, client);
  }
  // Returns the clients of the tasks that were run, in the order of the tasks.
  std::vector<uint64_t> release() {
    held_.count_down();
    pool_.reset();
    return done_;
  }

 private:
  std::latch held_{1};
  std::vector<uint64_t> done_;
  std::unique_ptr<TaskPool> pool_;
};

TEST(TaskPool, ClientsTakeTurns) {
  HeldPool pool;
  for (const uint64_t client : {1, 1, 1, 1, 2, 2, 3}) ASSERT_TRUE(pool.push(client));
  EXPECT_THAT(pool.release(), testing::ElementsAre(1, 2, 3, 1, 2, 1, 1));
}

TEST(TaskPool, OneClientHasItsShareOfThePlaces) {
  HeldPool pool({.name = "test", .max_waiting = 5, .max_of_client = 2});
  for (const uint64_t client : {1, 1, 2}) ASSERT_TRUE(pool.push(client));
  const auto third = pool.push(1);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code, ErrorCode::queue_full);
  EXPECT_EQ(third.error().message, "2 requests of this client wait to be read");
  for (const uint64_t client : {2, 3}) ASSERT_TRUE(pool.push(client));
  const auto sixth = pool.push(4);
  ASSERT_FALSE(sixth);
  EXPECT_EQ(sixth.error().code, ErrorCode::queue_full);
  EXPECT_EQ(sixth.error().message, "5 requests wait to be read");
  EXPECT_THAT(pool.release(), testing::ElementsAre(1, 2, 3, 1, 2));
}

// The second task of the client that is slow waits for its first one, and no other client does.
TEST(TaskPool, AClientThatIsSlowLeavesThreadsToOthers) {
  std::latch held(1);
  std::atomic<int> num_slow = 0;
  std::atomic<bool> other = false;
  {
    TaskPool pool({.name = "test", .num_threads = 2, .max_running_of_client = 1});
    for ([[maybe_unused]] const int i : {0, 1})
      ASSERT_TRUE(pool.push(
          [&] {
            ++num_slow;
            held.wait();
          },
          1));
    while (num_slow == 0) std::this_thread::yield();
    ASSERT_TRUE(pool.push([&] { other = true; }, 2));
    while (!other) std::this_thread::yield();
    EXPECT_EQ(num_slow, 1);
    held.count_down();
  }
  EXPECT_EQ(num_slow, 2) << "what waits is run before the end";
}

// Tasks that wait for another one with their key hold no thread.
TEST(TaskPool, TasksWithOneKeyFollowEachOther) {
  std::latch held(1);
  std::atomic<int> num_running = 0, num_done = 0;
  std::atomic<bool> at_once = false, other = false;
  {
    TaskPool pool({.name = "test", .num_threads = 4});
    for (uint64_t client = 1; client <= 4; ++client)
      ASSERT_TRUE(pool.push(
          [&] {
            if (++num_running > 1) at_once = true;
            held.wait();
            --num_running;
            ++num_done;
          },
          client, 77));
    while (num_running == 0) std::this_thread::yield();
    for (uint64_t client = 1; client <= 2; ++client)
      ASSERT_TRUE(pool.push([&] { other = true; }, client, 77 + client));
    while (!other) std::this_thread::yield();
    EXPECT_EQ(num_done, 0);
    held.count_down();
  }
  EXPECT_EQ(num_done, 4) << "what waits is run before the end";
  EXPECT_FALSE(at_once);
}

// The task of the client that was made way for ends while the one that gave way goes on: an idle
// thread takes the client's next task.
TEST(TaskPool, APlaceThatIsFreedBelowALongTaskIsSeen) {
  std::atomic<bool> over = false, long_begun = false, long_ended = false, in_time = false;
  std::atomic<bool> other_may_end = false, other_ended = false;
  TaskPool pool({.name = "test", .num_threads = 2, .max_running_of_client = 1});
  ASSERT_TRUE(pool.push(
      [&] {
        long_begun = true;
        const TimePoint patience = RealClock().now() + std::chrono::seconds(3);
        while (!over && RealClock().now() < patience) TaskPool::yield_turn();
        in_time = over.load();
        long_ended = true;
      },
      1));
  ASSERT_TRUE(pool.push(
      [&] {
        while (!other_may_end) std::this_thread::yield();
        other_ended = true;
      },
      2));
  while (!long_begun) std::this_thread::yield();
  ASSERT_TRUE(pool.push(
      [&] {
        other_may_end = true;
        while (!other_ended) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the other thread is idle
      },
      3));
  ASSERT_TRUE(pool.push([&] { over = true; }, 3));
  while (!long_ended) std::this_thread::yield();
  EXPECT_TRUE(in_time);
}

// The next task of its client and that of another client with its key need a thread each.
TEST(TaskPool, APlaceAndAKeyThatAreFreedBelowALongTaskAreSeen) {
  std::atomic<bool> long_begun = false, all_wait = false, nested_begun = false, at_once = false;
  std::atomic<int> num_begun = 0, num_ended = 0, num_running = 0, num_done = 0;
  const TimePoint patience = RealClock().now() + std::chrono::seconds(5);
  {
    TaskPool pool({.name = "test", .num_threads = 3, .max_running_of_client = 1});
    ASSERT_TRUE(pool.push(
        [&] {
          long_begun = true;
          while (num_done < 2 && RealClock().now() < patience) TaskPool::yield_turn();
        },
        1));
    while (!long_begun) std::this_thread::yield();
    for (const uint64_t client : {4, 5})
      ASSERT_TRUE(pool.push(
          [&] {
            ++num_begun;
            while (!nested_begun) std::this_thread::yield();
            ++num_ended;
          },
          client));
    while (num_begun < 2) std::this_thread::yield();
    ASSERT_TRUE(pool.push(
        [&] {
          nested_begun = true;
          while (num_ended < 2 || !all_wait) std::this_thread::yield();
          std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the others are idle
        },
        2, 77));
    const auto meets_the_other = [&] {
      if (++num_running == 2) at_once = true;
      while (!at_once && RealClock().now() < patience) std::this_thread::yield();
      --num_running;
      ++num_done;
    };
    ASSERT_TRUE(pool.push(meets_the_other, 2));
    ASSERT_TRUE(pool.push(meets_the_other, 3, 77));
    all_wait = true;
  }
  EXPECT_TRUE(at_once);
}

// The task that made way for it may go on.
TEST(TaskPool, ATaskThatThrowsGivesItsKeyBack) {
  std::atomic<bool> begun = false, caught = false, next = false;
  {
    TaskPool pool({.name = "test"});
    ASSERT_TRUE(pool.push([&] {
      begun = true;
      while (!caught) {
        try {
          TaskPool::yield_turn();
        } catch (const std::runtime_error&) {
          caught = true;
        }
      }
    }));
    while (!begun) std::this_thread::yield();
    ASSERT_TRUE(pool.push([] { throw std::runtime_error("of the test"); }, 0, 77));
    ASSERT_TRUE(pool.push([&] { next = true; }, 0, 77));
  }
  EXPECT_TRUE(next) << "what waits is run before the end";
}

// A task that has run takes no place in the queue.
TEST(TaskPool, PlacesAreGivenBack) {
  std::atomic<int> num_done = 0;
  TaskPool pool({.name = "test", .max_waiting = 1, .max_of_client = 1});
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(pool.push([&] { ++num_done; }, 7));
    while (num_done <= i) std::this_thread::yield();
  }
}

}  // namespace
}  // namespace hocket
