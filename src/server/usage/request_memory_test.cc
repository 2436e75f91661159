#include "server/usage/request_memory.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace hocket {
namespace {

TEST(RequestMemory, EachLimitHasItsOwnAnswer) {
  const auto budget =
      MemoryBudget::create({.request_bytes = 100, .owner_bytes = 150, .total_bytes = 288});
  const auto first = budget->open("ann"), second = budget->open("ann");
  const auto other = budget->open("bob");
  ASSERT_TRUE(first->take(100));
  const auto request = first->take(1);
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().code, ErrorCode::payload_too_large);
  ASSERT_TRUE(second->take(50));
  const auto key = second->take(1);
  ASSERT_FALSE(key);
  EXPECT_EQ(key.error().code, ErrorCode::rate_limited);
  ASSERT_TRUE(other->take(30));
  const auto all = other->take(1);
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(budget->held_bytes(), 180);
  EXPECT_EQ(budget->num_refused(), 3U);
}

TEST(RequestMemory, TheLastParts) {
  // With 64 KiB in total, small requests hold up to 4 bytes and middle ones up to 64; large ones
  // share 40 KiB.
  const auto budget = MemoryBudget::create({.total_bytes = 64 << 10});
  const auto large = budget->open("");
  ASSERT_TRUE(large->take(40 << 10));
  const auto refused = large->take(1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(refused.error().message.find("kept for smaller requests"), std::string::npos);
  EXPECT_NE(refused.error().fix.find("--total-request-memory-mib"), std::string::npos);
  std::vector<std::shared_ptr<RequestMemory>> kept;
  const auto opens = [&](int64_t bytes) {
    return kept.emplace_back(budget->open(""))->take(bytes).has_value();
  };
  for (int i = 0; i < 128; ++i) ASSERT_TRUE(opens(64));
  EXPECT_FALSE(opens(64));
  EXPECT_FALSE(opens(5));
  for (int i = 0; i < 4096; ++i) ASSERT_TRUE(opens(4));  // as many as there may be connections
  EXPECT_EQ(budget->held_bytes(), 64 << 10);
  EXPECT_FALSE(opens(1));
  EXPECT_TRUE(large->take(0));
  large->give_back(30 << 10);
  EXPECT_TRUE(large->take(1));
}

TEST(RequestMemory, WhatDiesGivesBack) {
  const auto budget = MemoryBudget::create({});
  {
    const auto request = budget->open("ann");
    HeldBytes body(request), copy(request);
    ASSERT_TRUE(body.grow(10));
    ASSERT_TRUE(copy.resize(30));
    EXPECT_EQ(budget->held_bytes(), 40);
    ASSERT_TRUE(copy.resize(5));
    HeldBytes moved = std::move(body);
    EXPECT_EQ(moved.bytes(), 10);
    EXPECT_EQ(budget->held_bytes(), 15);
    moved = HeldBytes();
    EXPECT_EQ(budget->held_bytes(), 5);
    ASSERT_TRUE(request->take(7));
  }
  EXPECT_EQ(budget->held_bytes(), 0);
  EXPECT_EQ(budget->peak_held_bytes(), 40);
}

TEST(RequestMemory, RequestsWithoutAnOwnerHaveNoLimitOfTheirs) {
  const auto budget = MemoryBudget::create({.request_bytes = 100, .owner_bytes = 10});
  ASSERT_TRUE(budget->open("")->take(100));
}

TEST(RequestMemory, AddsUpFromManyThreads) {
  const auto budget = MemoryBudget::create({.total_bytes = 1000});
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 2000; ++k) {
        HeldBytes held(budget->open("ann"));
        (void)held.grow(400);
        EXPECT_LE(budget->held_bytes(), 625);
      }
    });
  threads.clear();
  EXPECT_EQ(budget->held_bytes(), 0);
}

TEST(RequestMemory, WithoutARequestNobodyCounts) {
  HeldBytes held;
  EXPECT_TRUE(held.grow(1LL << 50));
  EXPECT_TRUE(held.resize(0));
  EXPECT_EQ(held.bytes(), 0);
}

}  // namespace
}  // namespace hocket
