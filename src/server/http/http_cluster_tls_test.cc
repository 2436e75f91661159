// Calls between ranks over TLS with the cluster's key: equal bytes, and who is refused.
#include <gmock/gmock.h>

#include <future>

#include "cluster/proxy_testing.h"
#include "server/http/http_client.h"
#include "server/http/http_testing.h"

namespace hocket {
namespace {

using testing::HasSubstr;

// Keeps the whole answer.
class AnswerKeeper final : public HttpSink {
 public:
  struct Answer {
    HttpEnd how = HttpEnd::cancelled;
    int status = 0;
    std::string body, why;
  };
  bool head(int status, HttpHeaders&&) override { return answer_.status = status, true; }
  bool body(std::string_view piece) override { return answer_.body.append(piece), true; }
  void end(HttpEnd how, const std::string& why) override {
    answer_.how = how;
    answer_.why = why;
    done.set_value(answer_);
  }
  std::promise<Answer> done;

 private:
  Answer answer_;
};

class HttpClusterTls : public HttpTest {
 protected:
  static std::shared_ptr<const TlsContext> key_of(const char* token) {
    return TlsContext::create(token).value();
  }
  AnswerKeeper::Answer ask(HttpClient& client, std::string body) const {
    const auto sink = std::make_shared<AnswerKeeper>();
    const auto port = static_cast<uint16_t>(server_->port());
    EXPECT_NE(
        client.start(
            {.to = TestProxy::loopback(port), .target = "/echo?x", .body = std::move(body)}, sink),
        0u);
    return sink->done.get_future().get();
  }
  static constexpr const char* kRankToken = "a token of sixteen";
};

TEST_F(HttpClusterTls, CallsBringEqualBytesOverKeptConnections) {
  start({.cluster_tls = key_of(kRankToken)});
  HttpClient client({.tls = key_of(kRankToken)});
  for (const size_t length : {size_t{0}, size_t{1}, size_t{70'000}, size_t{1} << 20}) {
    std::string body(length, '\0');
    for (size_t i = 0; i < length; ++i) body[i] = static_cast<char>(i * 31 + i / 251);
    const AnswerKeeper::Answer answer = ask(client, body);
    EXPECT_EQ(answer.how, HttpEnd::whole) << answer.why;
    EXPECT_EQ(answer.status, 200);
    EXPECT_TRUE(answer.body == "POST /echo?x " + body) << length;
  }
  EXPECT_EQ(server_->counts().num_accepted_total, 1u);
}

TEST_F(HttpClusterTls, AnotherTokenReachesNothing) {
  start({.cluster_tls = key_of(kRankToken)});
  HttpClient client({.tls = key_of("another token, as long")});
  const AnswerKeeper::Answer answer = ask(client, "a secret");
  EXPECT_EQ(answer.how, HttpEnd::not_connected);
  EXPECT_EQ(answer.status, 0);
}

TEST_F(HttpClusterTls, OneSideWithoutTlsIsRefused) {
  start({.cluster_tls = key_of(kRankToken)});
  HttpClient plain({});
  const AnswerKeeper::Answer answer = ask(plain, "");
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("this port speaks HTTPS"));
  start({});
  HttpClient client({.tls = key_of(kRankToken)});
  EXPECT_EQ(ask(client, "a secret").how, HttpEnd::not_connected);
}

}  // namespace
}  // namespace hocket
