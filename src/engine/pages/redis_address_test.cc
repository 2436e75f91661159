#include "engine/pages/redis_address.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

TEST(RedisAddressTest, EveryPartIsRead) {
  const auto all = parse_redis_address("redis://me:p%40ss:word@[::1]:7000/3");
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->host, (HostPort{.host = "::1", .port = 7000}));
  EXPECT_EQ(all->user, "me");
  EXPECT_EQ(all->password, "p@ss:word");
  EXPECT_EQ(all->database, 3);
  EXPECT_EQ(all->text(), "redis://me@[::1]:7000/3");
}

TEST(RedisAddressTest, WhatIsLeftOutHasADefault) {
  const auto host = parse_redis_address("valkey://kv.example");
  ASSERT_TRUE(host) << host.error().message;
  EXPECT_EQ(host->host, (HostPort{.host = "kv.example", .port = 6379}));
  EXPECT_EQ(host->database, 0);
  const auto password = parse_redis_address("redis://:secret@10.0.0.1/");
  ASSERT_TRUE(password) << password.error().message;
  EXPECT_EQ(password->user, "");
  EXPECT_EQ(password->password, "secret");
  EXPECT_TRUE(parse_redis_address("redis://[::1]"));
}

TEST(RedisAddressTest, TheSchemeSaysWhetherItIsInsideTls) {
  for (const auto& [text, has_tls] : {std::pair("redis://kv", false),
                                      {"valkey://kv", false},
                                      {"rediss://kv", true},
                                      {"valkeys://kv", true}})
    EXPECT_EQ(parse_redis_address(text).value().has_tls, has_tls) << text;
  EXPECT_EQ(parse_redis_address("valkeys://u:p@kv/2")->text(), "rediss://u@kv:6379/2");
}

TEST(RedisAddressTest, WrongOnesAreRefusedAndKeepTheirPassword) {
  for (const char* text :
       {"", "kv:6379", "http://kv:6379", "redisss://u:hidden@kv:6379", "redis://", "redis://kv:0",
        "redis://kv:70000", "redis://kv:x", "redis://kv:6379/x", "redis://kv:6379/-1",
        "redis://kv:6379/99999999999", "redis://me@kv:6379", "redis://u:hidden%4@kv:6379",
        "redis://u:hidden%zz@kv:6379", "redis://u:hidden@:6379", "redis://[::1"}) {
    SCOPED_TRACE(text);
    const auto address = parse_redis_address(text);
    ASSERT_FALSE(address);
    EXPECT_EQ(address.error().code, ErrorCode::bad_value);
    EXPECT_EQ(address.error().param, "kv-cache-store");
    EXPECT_EQ(address.error().message.find("hidden"), std::string::npos);
  }
  EXPECT_FALSE(parse_redis_address("redis://" + std::string(10000, 'h')));
}

TEST(RedisAddressTest, APasswordIsHiddenInAnyText) {
  EXPECT_EQ(without_password("redis://u:p:q@h:1/2"), "redis://u:***@h:1/2");
  EXPECT_EQ(without_password("u:p@h:1"), "u:***@h:1");
  EXPECT_EQ(without_password("redis://h:1"), "redis://h:1");
  EXPECT_EQ(without_password(""), "");
}

}  // namespace
}  // namespace hocket
