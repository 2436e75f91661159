#include "server/text_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace hocket {
namespace {

// Tasks that never end by themselves: on one thread, only another one can end them.
TEST(TextPool, ALongTaskMakesWayForOthers) {
  std::atomic<bool> begun = false, over = false;
  TextPool pool({.name = "test"});
  ASSERT_TRUE(pool.push([&] {
    begun = true;
    while (!over) TextPool::give_way();
  }));
  while (!begun) std::this_thread::yield();
  ASSERT_TRUE(pool.push([&] { over = true; }));
  while (!over) std::this_thread::yield();
}

TEST(TextPool, SoDoesATaskThatWasMadeWayFor) {
  std::atomic<bool> begun = false, over = false, ended = false, in_time = false;
  TextPool pool({.name = "test"});
  ASSERT_TRUE(pool.push([&] {
    begun = true;
    while (!ended) TextPool::give_way();
  }));
  while (!begun) std::this_thread::yield();
  ASSERT_TRUE(pool.push([&] {
    ASSERT_TRUE(pool.push([&] { over = true; }));
    const TimePoint patience = RealClock().now() + std::chrono::seconds(3);
    while (!over && RealClock().now() < patience) TextPool::give_way();
    in_time = over.load();
    ended = true;
  }));
  while (!ended) std::this_thread::yield();
  EXPECT_TRUE(in_time);
}

TEST(TextPool, ElsewhereNobodyWaits) {
  TextPool::give_way();
}

}  // namespace
}  // namespace hocket
