// Tests the client of etcd inside TLS, with a real server that asks clients for a certificate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/certificates_testing.h"
#include "cluster/etcd_process_testing.h"

namespace hocket {
namespace {

using testing::HasSubstr;

class EtcdTlsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (EtcdProcess::program().empty()) GTEST_SKIP() << "etcd is not installed: etcd-server";
    certificates_.make("server", "IP:127.0.0.1,DNS:localhost");
    certificates_.make("client", "");
    servers_ = EtcdProcess::start(
        1, {.words = {"--cert-file", certificates_.file("server.crt"), "--key-file",
                      certificates_.file("server.key"), "--trusted-ca-file",
                      certificates_.file("ca.crt"), "--client-cert-auth"},
            .client = certificates_.trusting("client")});
    ASSERT_FALSE(servers_.empty()) << "etcd does not start";
  }
  EtcdClient client(std::shared_ptr<const TlsContext> tls, const std::string& host = "127.0.0.1") {
    return EtcdClient({.servers = {{host, servers_[0]->port()}}, .tls = std::move(tls)});
  }
  std::string error_with(std::shared_ptr<const TlsContext> tls) {
    const auto range = client(std::move(tls)).range("/a", 1);
    return range ? "it was answered" : range.error().message + "; " + range.error().fix;
  }

  TestCertificates certificates_;
  std::vector<std::unique_ptr<EtcdProcess>> servers_;
};

TEST_F(EtcdTlsTest, CallsAndWatchesAreThoseOfARealOne) {
  for (const char* host : {"127.0.0.1", "localhost"}) {
    EtcdClient etcd = client(certificates_.trusting("client"), host);
    const auto before = etcd.range("/a", 10);
    ASSERT_TRUE(before) << before.error().message;
    ASSERT_TRUE(etcd.watch("/a", before->revision + 1));
    const std::string large(size_t{300} << 10, 'x');  // many records
    EXPECT_EQ(etcd.swap({.key = "", .puts = {{"/a", large}, {"/b", host}}}), true);
    std::vector<EtcdChange> changes;
    const TimePoint end = RealClock().now() + std::chrono::seconds(10);
    while (changes.empty() && RealClock().now() < end) {
      pollfd ready{.fd = etcd.watch_fd(), .events = POLLIN, .revents = 0};
      ::poll(&ready, 1, 100);
      auto some = etcd.changes();
      ASSERT_TRUE(some) << some.error().message;
      changes = *std::move(some);
    }
    ASSERT_EQ(changes.size(), 1u);
    EXPECT_TRUE(changes[0].entry.value == large);
    EXPECT_EQ(etcd.range("/b", 1)->entries.front().value, host);
  }
}

TEST_F(EtcdTlsTest, OnlyTheRightCertificatesDo) {
  TestCertificates others;
  others.make("client", "");
  EXPECT_THAT(error_with(others.trusting("client")), HasSubstr("its certificate is refused"));
  EXPECT_THAT(error_with(others.trusting("client")), HasSubstr("--cluster-store-cacert"));
  EXPECT_THAT(error_with(certificates_.trusting()), Not(HasSubstr("it was answered")));
  EXPECT_THAT(error_with(nullptr), Not(HasSubstr("it was answered"))) << "in the clear";
}

TEST_F(EtcdTlsTest, ACertificateForAnotherNameIsRefused) {
  certificates_.make("server", "DNS:etcd.example");  // etcd reads it at each connection
  const std::string error = error_with(certificates_.trusting("client"));
  EXPECT_THAT(error, HasSubstr("its certificate is refused: IP address mismatch")) << error;
}

TEST(TlsForServers, FilesThatCannotBeUsedAreNamed) {
  const TestCertificates certificates;
  const auto refused = [](const CertificateFiles& files) {
    const auto made = TlsContext::for_servers(files, "store");
    return made ? "it was taken" : made.error().param;
  };
  const std::string crt = certificates.file("ca.crt"), key = certificates.file("ca.key");
  EXPECT_EQ(refused({.ca = crt, .certificate = crt, .key = key}), "it was taken");
  EXPECT_EQ(refused({.ca = key}), "store-cacert");
  EXPECT_EQ(refused({.ca = certificates.file("none")}), "store-cacert");
  EXPECT_EQ(refused({.certificate = crt}), "store-key");
  EXPECT_EQ(refused({.key = key}), "store-cert");
  EXPECT_EQ(refused({.certificate = key, .key = key}), "store-cert");
  EXPECT_EQ(refused({.certificate = crt, .key = crt}), "store-key");
}

}  // namespace
}  // namespace hocket
