// Tests a Redis inside TLS as a store of pages, with a real server that asks clients for a
// certificate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/certificates_testing.h"
#include "engine/pages/redis_store.h"
#include "engine/pages/test_redis.h"

namespace hocket {
namespace {

using ::testing::HasSubstr;

class RedisTlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_use_redis()) GTEST_SKIP() << "built without hiredis";
    if (testing::TestRedis::program().empty())
      GTEST_SKIP() << "neither valkey-server nor redis-server here";
    certificates_.make("server", "IP:127.0.0.1");
    certificates_.make("client", "");
    redis_ = std::make_unique<testing::TestRedis>(
        std::vector<std::string>{"--tls-cert-file", certificates_.file("server.crt"),
                                 "--tls-key-file", certificates_.file("server.key"),
                                 "--tls-ca-cert-file", certificates_.file("ca.crt"),
                                 "--tls-auth-clients", "yes"},
        certificates_.trusting("client"));
    redis_->start();
  }
  RedisStore::Options options(std::shared_ptr<const TlsContext> tls) const {
    return {.address = {.host = {.host = "127.0.0.1", .port = redis_->port()}},
            .secret = {},
            .tls = std::move(tls)};
  }

  TestCertificates certificates_;
  std::unique_ptr<testing::TestRedis> redis_;
};

// Values of many records, which travel ahead of each other, in both directions.
TEST_F(RedisTlsTest, PagesComeBackAsTheyWere) {
  constexpr size_t kPages = 20, kBytes = 1'000'003;
  RedisStore store(options(certificates_.trusting("client")));
  std::vector<std::vector<std::byte>> bytes;
  std::vector<PageKey> keys(kPages);
  std::vector<PageStore::Page> pages;
  for (size_t i = 0; i < kPages; ++i) {
    keys[i][0] = static_cast<uint8_t>(i);
    bytes.emplace_back(kBytes);
    for (size_t at = 0; at < kBytes; ++at) bytes[i][at] = static_cast<std::byte>(i * at >> 3);
  }
  for (size_t i = 0; i < kPages; ++i) pages.push_back({keys[i], bytes[i]});
  const auto put = store.put(pages, [] { return false; });
  ASSERT_TRUE(put) << put.error().message;
  EXPECT_EQ(*put, kPages);
  const auto reading = store.open({.is_over = [] { return false; }});
  ASSERT_TRUE(reading);
  ASSERT_TRUE((*reading)->expect(keys, PageKind::page));
  std::vector<std::byte> page(kBytes);
  for (size_t i = 0; i < kPages; ++i) {
    ASSERT_EQ((*reading)->get(keys[i], page), true) << i;
    EXPECT_TRUE(page == bytes[i]) << i;
  }
}

TEST_F(RedisTlsTest, OnlyTheRightCertificatesDo) {
  TestCertificates others;
  others.make("client", "");
  const auto untrusted = RedisStore(options(others.trusting("client"))).describe();
  ASSERT_FALSE(untrusted);
  EXPECT_EQ(untrusted.error().code, ErrorCode::unauthorized);
  EXPECT_THAT(untrusted.error().message, HasSubstr("its certificate is refused"));
  EXPECT_THAT(untrusted.error().fix, HasSubstr("--kv-cache-store-cacert"));
  EXPECT_FALSE(RedisStore(options(certificates_.trusting())).describe()) << "it asks for one";
  EXPECT_FALSE(RedisStore(options(nullptr)).describe()) << "in the clear";
}

}  // namespace
}  // namespace hocket
