#include "base/mailbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

namespace hocket {
namespace {

using namespace std::chrono_literals;

TEST(Mailbox, KeepsTheOrder) {
  Mailbox<int> box(4);
  for (int round = 0; round < 3; ++round) {  // the ring wraps
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(box.push(10 * round + i));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(box.pop(), 10 * round + i);
  }
  EXPECT_EQ(box.pop(), std::nullopt);
}

TEST(Mailbox, RefusesWhenFullAndLeavesTheItem) {
  Mailbox<std::unique_ptr<int>> box(1);
  EXPECT_TRUE(box.push(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(box.push(std::move(second)));
  EXPECT_FALSE(box.push(second));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(*second, 2);
  EXPECT_EQ(**box.pop(), 1);
  EXPECT_TRUE(box.push(second));
  EXPECT_EQ(second, nullptr);
}

TEST(Mailbox, ReleasesAnItemWhenItIsTaken) {
  Mailbox<std::shared_ptr<int>> box(2);
  auto item = std::make_shared<int>(5);
  EXPECT_TRUE(box.push(std::shared_ptr<int>(item)));
  EXPECT_EQ(item.use_count(), 2);
  box.pop().reset();
  EXPECT_EQ(item.use_count(), 1);
}

TEST(Mailbox, ClosedTakesNothingButGivesTheRest) {
  Mailbox<int> box(4);
  EXPECT_TRUE(box.push(1));
  box.close();
  EXPECT_TRUE(box.closed());
  EXPECT_FALSE(box.push(2));
  EXPECT_EQ(box.wait_pop(1h), 1);
  EXPECT_EQ(box.wait_pop(1h), std::nullopt);  // returns at once
}

TEST(Mailbox, WaitEndsByTimeoutPushAndWake) {
  Mailbox<int> box(4);
  EXPECT_EQ(box.wait_pop(1ms), std::nullopt);
  std::thread writer([&] { EXPECT_TRUE(box.push(3)); });
  EXPECT_EQ(box.wait_pop(1h), 3);
  writer.join();
  box.wake();  // remembered, so that a later wait returns at once
  EXPECT_EQ(box.wait_pop(1h), std::nullopt);
  EXPECT_EQ(box.wait_pop(1ms), std::nullopt);
}

TEST(Mailbox, ManyWritersLoseNothing) {
  constexpr int kWriters = 4, kItems = 5000;
  Mailbox<int> box(64);
  std::atomic<int> refused = 0;
  std::vector<std::thread> writers;
  for (int w = 0; w < kWriters; ++w)
    writers.emplace_back([&, w] {
      for (int i = 0; i < kItems; ++i)
        while (!box.push(w * kItems + i)) {
          ++refused;
          std::this_thread::yield();
        }
    });
  std::vector<int> next(kWriters, 0);
  for (int taken = 0; taken < kWriters * kItems; ++taken) {
    const std::optional<int> item = box.wait_pop(1min);
    ASSERT_TRUE(item);
    EXPECT_EQ(*item % kItems, next[*item / kItems]++);  // each writer's own order is kept
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(box.size(), 0u);
}

TEST(Mailbox, SeveralReadersGetEachItemOnce) {
  constexpr int kReaders = 4, kItems = 20000;
  Mailbox<int> box(64);
  std::vector<std::atomic<int>> taken(kItems);
  std::vector<std::thread> readers;
  for (int r = 0; r < kReaders; ++r)
    readers.emplace_back([&] {
      while (const std::optional<int> item = box.wait_pop(1min))
        ++taken[static_cast<size_t>(*item)];
    });
  for (int i = 0; i < kItems; ++i)
    while (!box.push(int{i})) std::this_thread::yield();
  box.close();
  for (std::thread& reader : readers) reader.join();
  for (const std::atomic<int>& count : taken) ASSERT_EQ(count, 1);
}

}  // namespace
}  // namespace hocket
