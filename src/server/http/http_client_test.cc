#include "server/http/http_client.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "cluster/proxy_testing.h"
#include "server/http/http_testing.h"

namespace hocket {
namespace {

using std::chrono::milliseconds;
using HttpClientTest = HttpTest;

class TakesAll final : public HttpSink {
 public:
  bool head(int, HttpHeaders&&) override { return true; }
  bool body(std::string_view) override { return true; }
  void end(HttpEnd how, const std::string&) override { done.set_value(how); }
  std::promise<HttpEnd> done;
};

TEST_F(HttpClientTest, CallsHaveLimits) {
  start();
  HttpClient client({.max_calls = 2, .max_body_bytes = 100});
  const SocketAddress to = TestProxy::loopback(static_cast<uint16_t>(server_->port()));
  std::vector<std::shared_ptr<TakesAll>> sinks;
  const auto call = [&](size_t num_bytes, Duration most) {
    sinks.push_back(std::make_shared<TakesAll>());
    return client.start(
        {.to = to, .target = "/generate", .body = std::string(num_bytes, ' '), .max_time = most},
        sinks.back());
  };
  EXPECT_EQ(call(101, {}), 0u);
  EXPECT_NE(call(90, milliseconds(100)), 0u);
  EXPECT_EQ(call(11, {}), 0u);
  EXPECT_NE(call(10, {}), 0u);
  EXPECT_EQ(call(0, {}), 0u);
  EXPECT_EQ(sinks[1]->done.get_future().get(), HttpEnd::broken);  // its time limit has passed
  client.stop();
  EXPECT_EQ(sinks[3]->done.get_future().get(), HttpEnd::cancelled);
  EXPECT_EQ(call(0, {}), 0u);
}

TEST_F(HttpClientTest, OthersLeaveRoomForCountedCalls) {
  start();
  HttpClient client({.max_calls = 1});
  const SocketAddress to = TestProxy::loopback(static_cast<uint16_t>(server_->port()));
  const auto call = [&](bool is_counted) {
    return client.start({.to = to, .target = "/generate", .is_counted = is_counted},
                        std::make_shared<TakesAll>());
  };
  EXPECT_NE(call(false), 0u);
  EXPECT_EQ(client.num_calls(), 0u);
  EXPECT_NE(call(true), 0u);
  EXPECT_EQ(call(true), 0u);
  EXPECT_NE(call(false), 0u);
  EXPECT_EQ(client.num_calls(), 1u);
  client.stop();
  EXPECT_EQ(client.num_calls(), 0u);
}

}  // namespace
}  // namespace hocket
