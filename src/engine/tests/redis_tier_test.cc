// Tests a Redis behind the prefix cache: an answer is the same whether its prefix was computed, or
// came from Redis after a restart or from another service, and faults of Redis cost nothing but
// time.
#include "engine/pages/test_redis.h"
#include "engine/tests/stored_pages.h"

namespace hocket {
namespace {

using namespace testing;
namespace fs = std::filesystem;

constexpr auto kRedisTier = static_cast<size_t>(PageTier::redis);

class RedisTierTest : public testing::StoredPagesTest {
 protected:
  void SetUp() override {
    if (!can_use_redis()) GTEST_SKIP() << "built without hiredis";
    if (TestRedis::program().empty()) GTEST_SKIP() << "neither valkey-server nor redis-server here";
    redis_.emplace();
    redis_->start();
  }

  ServerSettings storing(ServerSettings settings) const {
    settings.memory.kv_cache_store = redis_->url();
    // Nothing of a test may depend on the speed of the machine.
    settings.memory.hicache_storage_prefetch_policy = "wait_complete";
    return settings;
  }
  static PageTierStats redis_of(Service& service) {
    return service.engine().stats().tier.value().tiers[kRedisTier];
  }

  std::optional<TestRedis> redis_;
};

// Full attention, latents, delta nets with states, keys and values in eight bits, sliding windows.
// The folder is lost between the two.
TEST_F(RedisTierTest, EveryKindOfCacheOutlivesARestartWithAnEmptyFolder) {
  for (const Form& form : {kMoe, kMla, kDelta, kKimiLinearInt8, kInt8Kv, kMimo}) {
    SCOPED_TRACE(form.name);
    ServerSettings settings = storing(plain(&form));
    settings.memory.kv_cache_dir = folder_.string();
    const RequestInput input = question(3, 600);
    const Answer want = computed(plain(&form), input);
    {
      Service service(settings);
      ASSERT_TRUE(service.works());
      const Answer first = ask(service, input);
      expect_same(first, want);
      EXPECT_EQ(first.summary.fetched_tokens[kRedisTier], 0);
    }  // all shared pages are written before the engine ends
    EXPECT_GT(redis_->num_keys(), 0);
    fs::remove_all(folder_);
    Service again(settings);
    const Answer got = ask(again, input);
    expect_same(got, want);
    EXPECT_GE(got.summary.cached_tokens, 500);
    EXPECT_GE(got.summary.fetched_tokens[kRedisTier], 500);
    EXPECT_EQ(got.summary.fetched_tokens[static_cast<size_t>(PageTier::file)], 0);
    // The folder gets the pages that came from Redis, too.
    EXPECT_TRUE(again.read_until([&] {
      return again.engine().stats().tier.value().tiers[0].pages_written_total >= 500u / 32;
    }));
  }
}

TEST_F(RedisTierTest, TwoServicesShareOneRedis) {
  const Answer want = computed(plain(), question(1));
  Service one(storing(plain()));
  expect_same(ask(one, question(1)), want);
  EXPECT_TRUE(one.read_until([&] { return redis_of(one).pages_written_total >= 21; }));
  Service other(storing(plain(nullptr, 2)));  // the number of ranks changes no bit
  const Answer got = ask(other, question(1));
  expect_same(got, want);
  EXPECT_EQ(got.summary.fetched_tokens[kRedisTier], 672);
  EXPECT_EQ(redis_of(other).tokens_total, 672u);
  RequestInput foreign = question(1);
  foreign.cache_namespace = CacheNamespace(7);
  EXPECT_EQ(ask(other, std::move(foreign)).summary.cached_tokens, 0);
  // Another form finds nothing.
  ServerSettings eight = storing(plain());
  eight.memory.kv_cache_dtype = "int8";
  Service form(eight);
  EXPECT_EQ(ask(form, question(1)).summary.cached_tokens, 0);
}

TEST_F(RedisTierTest, PagesAreWrittenSelectively) {
  ServerSettings settings = storing(plain());
  settings.memory.hicache_write_policy = "write_through_selective";
  {
    Service service(settings);
    ask(service, question(1));
  }
  EXPECT_EQ(redis_->num_keys(), 0);
  {
    Service service(settings);
    ask(service, question(1));
    ask(service, question(1));
  }
  EXPECT_EQ(redis_->num_keys(), 21);
}

TEST_F(RedisTierTest, DamagedValuesAreComputedAnew) {
  const Answer want = computed(plain(), question(1));
  {
    Service service(storing(plain()));
    ask(service, question(1));
  }
  ASSERT_EQ(redis_->num_keys(), 22);
  const auto keys = redis_->num_keys();
  for (int64_t i = 0; i < 10 * keys; ++i) {
    const std::string key = redis_->some_key();
    ASSERT_TRUE(redis_->ask({"SETRANGE", key, "1000", fmt::format("{}", i)}));
  }
  Service service(storing(plain()));
  const Answer got = ask(service, question(1));
  expect_same(got, want);
  EXPECT_GE(redis_of(service).damaged_total, 1u);
  EXPECT_FALSE(redis_of(service).away);
}

TEST_F(RedisTierTest, AHangingRedisStopsNoStepAndNoEnd) {
  std::vector<Answer> want;
  for (int seed = 1; seed <= 4; ++seed) want.push_back(computed(plain(), question(seed)));
  const TimePoint begin = RealClock().now();
  {
    Service service(storing(plain()));
    expect_same(ask(service, question(1)), want[0]);
    redis_->stop();
    EXPECT_TRUE(service.engine().flush_cache());
    for (int seed = 1; seed <= 4; ++seed)
      expect_same(ask(service, question(seed)), want[static_cast<size_t>(seed - 1)]);
    EXPECT_TRUE(redis_of(service).away);
    EXPECT_GE(redis_of(service).failures_total, 1u);
  }
  EXPECT_LT(RealClock().now() - begin, kPatience / 2);
  redis_->go_on();
}

TEST_F(RedisTierTest, AKilledRedisCostsNoAnswer) {
  std::vector<Answer> want;
  for (int seed = 1; seed <= 6; ++seed) want.push_back(computed(plain(), question(seed)));
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    Service service(storing(plain()));
    std::vector<RequestId> ids;
    for (int seed = 1; seed <= 6; ++seed) ids.push_back(*service.submit(question(seed)));
    // In the middle of its writes, and of reads in later rounds.
    EXPECT_TRUE(service.read_until([&] {
      const PageTierStats redis = redis_of(service);
      return redis.pages_written_total + redis.pages_read_total > 10u + 5u * round;
    }));
    redis_->kill();
    ASSERT_TRUE(service.read_all());
    for (size_t i = 0; i < ids.size(); ++i) expect_same(service.answer(ids[i]), want[i]);
    EXPECT_EQ(redis_of(service).damaged_total, 0u);
    redis_->start();
    Service filling(storing(plain()));
    for (int seed = 1; seed <= 3; ++seed) expect_same(ask(filling, question(seed)), want[seed - 1]);
  }
}

TEST_F(RedisTierTest, AFullRedisIsReadAndWrittenNoMore) {
  const Answer want = computed(plain(), question(1));
  {
    Service service(storing(plain()));
    ask(service, question(1));
  }
  ASSERT_TRUE(redis_->ask({"CONFIG", "SET", "maxmemory", "1"}));
  Service service(storing(plain()));
  ask(service, question(2));
  EXPECT_TRUE(service.read_until(
      [&] { return service.engine().stats().tier.value().num_left_out() > 20; }));
  const Answer got = ask(service, question(1));
  expect_same(got, want);
  EXPECT_EQ(got.summary.fetched_tokens[kRedisTier], 672);
}

TEST_F(RedisTierTest, ARedisThatIsNotThereAtTheStartIsNoFault) {
  redis_->kill();
  Service service(storing(plain()));
  ASSERT_TRUE(service.works());
  expect_same(ask(service, question(1)), computed(plain(), question(1)));
  EXPECT_TRUE(redis_of(service).away);
}

TEST_F(RedisTierTest, WhatCannotBeIsRefusedByName) {
  const auto param = [](const ServerSettings& s) {
    return Engine::create({.settings = s}).error().param;
  };
  ServerSettings settings = plain();
  settings.memory.kv_cache_store = "localhost:6379";
  EXPECT_EQ(param(settings), "kv-cache-store");
  settings = storing(plain());
  settings.scheduler.disable_radix_cache = true;
  EXPECT_EQ(param(settings), "kv-cache-store");
  settings = storing(plain());
  settings.memory.kv_cache_dir_gb = 5;
  EXPECT_EQ(param(settings), "kv-cache-dir-gb");
}

}  // namespace
}  // namespace hocket
