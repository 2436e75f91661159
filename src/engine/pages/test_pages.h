// Pages with numbers, whose bytes follow from these, written to a store and read from it; and the
// fixture of tests over a Redis. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/pages/redis_store.h"
#include "engine/pages/test_redis.h"

namespace hocket::testing {

inline constexpr Duration kShortInterval = std::chrono::milliseconds(200);

inline std::vector<std::byte> page_number(int number, size_t size = 256) {
  std::mt19937 random(static_cast<unsigned>(number));
  std::vector<std::byte> page(size);
  for (std::byte& byte : page) byte = static_cast<std::byte>(random());
  return page;
}

inline PageKey stored_key(int number) {
  PageKey key{};
  key[0] = static_cast<uint8_t>(number);
  key[1] = static_cast<uint8_t>(number >> 8);
  return key;
}

inline Result<size_t> put_numbers(
    PageStore& store, int from, int to, size_t size = 256,
    const std::function<bool()>& is_over = [] { return false; }) {
  std::vector<std::vector<std::byte>> bytes;
  for (int i = from; i < to; ++i) bytes.push_back(page_number(i, size));
  std::vector<PageStore::Page> pages;
  for (int i = from; i < to; ++i)
    pages.push_back({stored_key(i), bytes[static_cast<size_t>(i - from)]});
  return store.put(pages, is_over);
}

// Reads these pages in order, until one is not there. Returns how many were, all with their bytes.
inline Result<int> get_numbers(PageStore& store, int from, int to, size_t size = 256) {
  HOCKET_TRY(const auto reading, store.open({.is_over = [] { return false; }}));
  if (reading == nullptr) return 0;
  std::vector<PageKey> keys;
  for (int i = from; i < to; ++i) keys.push_back(stored_key(i));
  HOCKET_TRY_VOID(reading->expect(keys, PageKind::page));
  std::vector<std::byte> page(size);
  for (int i = from; i < to; ++i) {
    HOCKET_TRY(const bool found, reading->get(stored_key(i), page));
    if (!found) return i - from;
    EXPECT_EQ(page, page_number(i, size));
  }
  return to - from;
}

class RedisStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_use_redis()) GTEST_SKIP() << "built without hiredis";
    if (TestRedis::program().empty()) GTEST_SKIP() << "neither valkey-server nor redis-server here";
  }
  static RedisStore::Options options(uint16_t port, std::string secret = {}) {
    return {.address = {.host = {.host = "127.0.0.1", .port = port}},
            .secret = std::move(secret),
            .retry_interval = kShortInterval};
  }
  static bool wait_until_back(const PageStore& store) {
    for (int i = 0; i < 500 && store.is_away(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return !store.is_away();
  }
};

}  // namespace hocket::testing
