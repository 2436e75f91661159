// Tests the connections of a store in a Redis: those that ended while they were idle, and those
// that are used again.
#include "engine/pages/test_pages.h"

namespace hocket {
namespace {

using namespace testing;

using RedisLinksTest = RedisStoreTest;

// Servers and proxies end connections that are idle; the store is well.
TEST_F(RedisLinksTest, AConnectionThatEndedWhileItWasIdleIsNoFailure) {
  TestRedis redis({"--timeout", "1"});
  redis.start();
  RedisStore store(options(redis.port()));
  ASSERT_EQ(put_numbers(store, 0, 4), 4u);
  const auto is_alone = [&] {
    return redis.ask({"INFO", "clients"})->text.contains("connected_clients:1\r");
  };
  for (int i = 0; i < 2000 && !is_alone(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(is_alone());
  EXPECT_EQ(get_numbers(store, 0, 4), 4);
  EXPECT_EQ(store.figures().failures_total, 0u);
  EXPECT_FALSE(store.is_away());
}

// One that was idle for long has to answer first.
TEST_F(RedisLinksTest, AnIdleConnectionIsAskedWhetherItAnswers) {
  TestRedis redis;
  redis.start();
  RedisStore::Options distrustful = options(redis.port());
  distrustful.trusted_for = {};
  RedisStore store(distrustful);
  ASSERT_EQ(put_numbers(store, 0, 4), 4u);
  EXPECT_EQ(get_numbers(store, 0, 4), 4);
  EXPECT_TRUE(redis.ask({"INFO", "commandstats"})->text.contains("cmdstat_ping:calls=2"))
      << "that of the test's start, and that of the second use";
}

// The ordinary new prompt is not there.
TEST_F(RedisLinksTest, APromptThatIsAbsentCostsNoConnection) {
  TestRedis redis;
  redis.start();
  RedisStore store(options(redis.port()));
  const auto num_connections = [&] {
    const std::string text = redis.ask({"INFO", "stats"})->text;
    return std::stoi(text.substr(text.find("total_connections_received:") + 27));
  };
  EXPECT_EQ(get_numbers(store, 0, 100), 0);
  const int before = num_connections();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(get_numbers(store, 100 * i, 100 * i + 100), 0);
  EXPECT_EQ(num_connections(), before + 1) << "that of the question itself";
  ASSERT_EQ(put_numbers(store, 1, 4), 3u);
  EXPECT_EQ(get_numbers(store, 0, 4), 0) << "pages behind the absent one end the connection";
  EXPECT_EQ(get_numbers(store, 1, 4), 3);
  EXPECT_EQ(store.figures().failures_total, 0u);
}

}  // namespace
}  // namespace hocket
