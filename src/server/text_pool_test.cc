#include "server/text_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace hocket {
namespace {

// A task that never ends by itself: on one thread, only another one can end it.
TEST(TextPool, ALongTaskMakesWayForOthers) {
  std::atomic<bool> begun = false, over = false, nested = false;
  TextPool pool({.name = "test"});
  ASSERT_TRUE(pool.push([&] {
    begun = true;
    while (!over) TextPool::give_way();
  }));
  while (!begun) std::this_thread::yield();
  ASSERT_TRUE(pool.push([&] {
    ASSERT_TRUE(pool.push([&] { over = true; }));
    for (int i = 0; i < 1000; ++i) TextPool::give_way();
    nested = over.load();
  }));
  while (!over) std::this_thread::yield();
  EXPECT_FALSE(nested) << "one that was made way for makes way for nobody";
}

TEST(TextPool, ElsewhereNobodyWaits) {
  TextPool::give_way();
}

}  // namespace
}  // namespace hocket
