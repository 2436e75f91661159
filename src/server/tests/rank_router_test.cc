// The router of one rank and another rank, whose answers the test gives: bytes, faults, limits.
#include "server/ranks/rank_router.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <future>

#include "base/check.h"
#include "cluster/test_ranks.h"
#include "server/access/access_check.h"
#include "server/access/client_key.h"
#include "server/http/error_map.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

using std::chrono::seconds;

constexpr const char* kKeyOfRank1 = "the-key-of-rank-1";

// Rank 0 is a whole server that counts itself as full; rank 1 is a port behind a link that can
// fail.
class RankRouterTest : public Ranks {
 protected:
  struct ForwardedRequest {
    HttpRequest request;
    std::shared_ptr<HttpExchange> exchange;
  };

  void SetUp() override {
    start_all(2);
    ServerSettings settings;
    settings.parallel.dp_routing = "shortest";
    rank_0_ = std::make_unique<TestServer>(TestServer::Text::bundled, settings, &plane(0));
    rank_0_->engine.rank_loads.write({{.num_requests = 9, .num_tokens = 900}, {}});
    say(*rank_0_, "here");
    start_rank_1();
  }
  void TearDown() override {
    rank_0_.reset();
    {
      std::lock_guard lock(mutex_);
      held_.clear();
    }
    rank_1_.reset();
  }
  void start_rank_1() {
    HttpOptions options;
    options.admit = [](const HttpRequest& head) { return admit_rank(head, kKeyOfRank1); };
    auto server = HttpServer::create(options, [this](HttpRequest&& request, auto exchange) {
      std::lock_guard lock(mutex_);
      held_.push_back({std::move(request), std::move(exchange)});
      news_.notify_all();
    });
    ASSERT_TRUE(server);
    rank_1_ = *std::move(server);
    link_ = std::make_unique<TestProxy>(static_cast<uint16_t>(rank_1_->port()));
    publish(link_->port());
  }
  // Publishes this port as rank 1's and waits until rank 0 knows it.
  void publish(uint16_t port) {
    const std::string place = fmt::format("127.0.0.1:{}", port);
    ASSERT_TRUE(plane(1).set("http/1",
                             fmt::format("{} {} {}", plane(1).self().boot_id, place, kKeyOfRank1)));
    ASSERT_TRUE(eventually([&] { return address_of_rank_1() == place; }));
  }
  std::string address_of_rank_1() {
    const Json peer = rank_0_->get("/get_server_info")["peers"][1];
    return peer["address"].is_null() ? "" : peer["address"].get<std::string>();
  }
  // Returns a client that has sent a request to rank 0.
  TestClient ask(const Json& body, const char* path = "/generate", int receive_buffer = 0) {
    TestClient client(rank_0_->server->port(), receive_buffer);
    client.send(TestServer::request_text("POST", path, body.dump()));
    return client;
  }
  // Returns the request that rank 0 forwarded to rank 1; stops the test after 5 s without one.
  ForwardedRequest take() {
    std::unique_lock lock(mutex_);
    const bool came = news_.wait_for(lock, seconds(5), [&] { return !held_.empty(); });
    HOCKET_CHECK(came);
    ForwardedRequest asked = std::move(held_.front());
    held_.pop_front();
    return asked;
  }
  static Json error_of(const TestAnswer& answer) {
    return Json::parse(answer.body, nullptr, false)["error"];
  }
  uint64_t metric(std::string_view name) {
    const std::string text = rank_0_->ask("GET", "/metrics").body;
    const size_t at = text.find(fmt::format("\nhocket:{}{{", name));
    return at == std::string::npos
               ? 0
               : static_cast<uint64_t>(std::atoll(text.c_str() + text.find("} ", at) + 2));
  }

  const Json body_ = {{"input_ids", {5, 6, 7}}, {"sampling_params", {{"max_new_tokens", 4}}}};
  const Json stream_ = {{"input_ids", {5, 6, 7}}, {"stream", true}};
  std::unique_ptr<TestServer> rank_0_;
  std::unique_ptr<HttpServer> rank_1_;
  std::unique_ptr<TestProxy> link_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<ForwardedRequest> held_;
};

TEST_F(RankRouterTest, TheRequestGoesAsItCame) {
  TestClient client(rank_0_->server->port());
  const std::string body = R"({"input_ids" : [1,2],   "sampling_params":{"max_new_tokens":3}})";
  client.send(
      fmt::format("POST /generate HTTP/1.1\r\nHost: x\r\nX-Request-Id: r 7\r\n"
                  "Content-Length: {}\r\n\r\n{}",
                  body.size(), body));
  const ForwardedRequest asked = take();
  EXPECT_EQ(asked.request.method, "POST");
  EXPECT_EQ(asked.request.path, "/generate");
  EXPECT_EQ(asked.request.body, body);
  EXPECT_EQ(asked.request.header("content-type"), "application/json");
  EXPECT_EQ(asked.request.header("x-hocket-via"), "rank 0");
  EXPECT_EQ(asked.request.header("x-request-id"), "r 7");
  EXPECT_NE(asked.request.header(kClientHeader), "");
  asked.exchange->respond(200, "application/json", "{\"a\":  1}", {{"X-What", "this"}});
  const TestAnswer answer = client.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "{\"a\":  1}");
  EXPECT_NE(answer.head.find("X-What: this"), std::string::npos);
  EXPECT_EQ(metric("forwarded_requests_total"), 1u);
  EXPECT_TRUE(rank_0_->engine.seen.empty());
}

// The client gets the same bytes for pieces of any size, in whole events.
TEST_F(RankRouterTest, StreamsAreRelayedByteByByte) {
  std::string events;
  for (int i = 0; i < 300; ++i)
    append_sse(events, fmt::format("{{\"n\":{},\"text\":\"{}\"}}", i, std::string(i % 97, 'x')));
  append_sse(events, kSseDone);
  TestClient client = ask(stream_);
  const ForwardedRequest asked = take();
  ASSERT_TRUE(asked.exchange->start_stream("text/event-stream", {{"Cache-Control", "no-cache"}}));
  for (size_t at = 0; at < events.size(); at += 613) {
    ASSERT_TRUE(asked.exchange->write(std::string_view(events).substr(at, 613)));
    if (at % 7 == 0) std::this_thread::sleep_for(milliseconds(2));
  }
  ASSERT_TRUE(asked.exchange->finish());
  const TestAnswer answer = client.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, events);
  EXPECT_NE(answer.head.find("Content-Type: text/event-stream"), std::string::npos);
  EXPECT_NE(answer.head.find("Cache-Control: no-cache"), std::string::npos);
}

TEST_F(RankRouterTest, ALargeEventIsPassedOn) {
  std::string events;
  append_sse(events, std::string(3 << 20, 'x'));
  append_sse(events, kSseDone);
  TestClient client = ask(stream_);
  const ForwardedRequest asked = take();
  ASSERT_TRUE(asked.exchange->start_stream("text/event-stream"));
  ASSERT_TRUE(asked.exchange->write(events));
  ASSERT_TRUE(asked.exchange->finish());
  const TestAnswer answer = client.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.body == events) << answer.body.size() << " bytes of " << events.size();
  EXPECT_TRUE(eventually([&] { return metric("request_memory_bytes") == 0; }));
}

TEST_F(RankRouterTest, EventsArriveWhenTheyAreSaid) {
  TestClient client = ask(stream_);
  const ForwardedRequest asked = take();
  asked.exchange->start_stream("text/event-stream");
  for (int i = 0; i < 3; ++i) {
    asked.exchange->write(fmt::format("data: {}\n\n", i));
    EXPECT_TRUE(client.until(fmt::format("data: {}\n\n", i), seconds(3)).second);
  }
  asked.exchange->finish();
}

TEST_F(RankRouterTest, ErrorsOfTheRankAreTheClients) {
  TestClient client = ask(body_);
  const ForwardedRequest asked = take();
  respond_error(*asked.exchange, error(ErrorCode::queue_full, "1024 requests wait"));
  const TestAnswer answer = client.receive();
  EXPECT_EQ(answer.status, 429);
  EXPECT_NE(answer.head.find("Retry-After: 1"), std::string::npos) << answer.head;
  EXPECT_EQ(error_of(answer)["code"], "queue_full");
}

TEST_F(RankRouterTest, ConnectionsAreUsedAgain) {
  for (int i = 0; i < 20; ++i) {
    TestClient client = ask(body_);
    const ForwardedRequest asked = take();
    asked.exchange->respond(200, "application/json", "{}");
    ASSERT_EQ(client.receive().status, 200);
  }
  EXPECT_EQ(rank_1_->counts().num_accepted_total, 1u);
}

TEST_F(RankRouterTest, AKeptConnectionThatEndedIsReplaced) {
  for (int i = 0; i < 3; ++i) {
    TestClient client = ask(body_);
    const ForwardedRequest asked = take();
    asked.exchange->respond(200, "application/json", "{}");
    ASSERT_EQ(client.receive().status, 200);
    link_->set(TestProxy::Link::cut);
    ASSERT_TRUE(eventually([&] { return rank_1_->counts().num_connections == 0; }));
    link_->set(TestProxy::Link::up);
    std::this_thread::sleep_for(milliseconds(20));  // until the client has noticed it
  }
  EXPECT_EQ(rank_1_->counts().num_accepted_total, 3u);
  EXPECT_EQ(metric("forwarded_requests_failed_total"), 0u);
}

TEST_F(RankRouterTest, AClientThatLeavesIsGoneThereToo) {
  for (const Json& body : {stream_, body_}) {
    TestClient client = ask(body);
    const ForwardedRequest asked = take();
    std::atomic<bool> left = false;
    asked.exchange->on_close([&] { left = true; });
    if (body == stream_) {
      asked.exchange->start_stream("text/event-stream");
      asked.exchange->write("data: 1\n\n");
      ASSERT_TRUE(client.until("data: 1", seconds(3)).second);
    }
    client.close();
    EXPECT_TRUE(eventually([&] { return left.load(); }));
  }
  EXPECT_TRUE(eventually([&] { return metric("forwarded_requests") == 0; }));
  EXPECT_EQ(metric("forwarded_requests_failed_total"), 0u);
}

TEST_F(RankRouterTest, ASlowClientIsDroppedThereToo) {
  const TestClient client = ask(stream_, "/generate", 4096);
  const ForwardedRequest asked = take();
  asked.exchange->start_stream("text/event-stream");
  std::atomic<bool> left = false;
  asked.exchange->on_close([&] { left = true; });
  const std::string event = "data: " + std::string(100'000, 'x') + "\n\n";
  int64_t num_bytes = 0;
  while (!left && num_bytes < int64_t{256} << 20) {
    asked.exchange->write(event);
    num_bytes += std::ssize(event);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(left);
  EXPECT_TRUE(eventually([&] { return metric("http_slow_clients_total") == 1; }));
}

// Rank 0 goes on with both answers. It has no progress of the stream, so all of it follows what was
// passed on before.
TEST_F(RankRouterTest, ThisRankGoesOnWhenARankEndsInMidAnswer) {
  TestClient streaming = ask(stream_);
  const ForwardedRequest first = take();
  ASSERT_NE(first.exchange, nullptr);
  EXPECT_NE(first.request.header(kAnswerHeader), "");
  first.exchange->start_stream("text/event-stream");
  first.exchange->write("data: {\"text\":\"whole\"}\n\ndata: {\"text\":\"ha");
  ASSERT_TRUE(streaming.until("whole\"}\n\n", seconds(3)).second);
  TestClient plain = ask(body_);
  const ForwardedRequest second = take();
  ASSERT_NE(second.exchange, nullptr);
  link_->set(TestProxy::Link::cut);

  const TestAnswer answer = plain.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(Json::parse(answer.body)["text"], "here");
  const auto rest = streaming.until("data: [DONE]\n\n", seconds(3));
  EXPECT_TRUE(rest.second);
  EXPECT_EQ(rest.first.find("\"ha"), std::string::npos) << rest.first;  // no half event
  EXPECT_THAT(rest.first, testing::HasSubstr("\"text\":\"here\""));
  EXPECT_TRUE(eventually([&] { return metric("forwarded_requests_failed_total") == 2; }));
  EXPECT_EQ(metric("forwarded_requests_resumed_total"), 2u);
}

// The connection reports nothing; the control plane does.
TEST_F(RankRouterTest, ABlackHoleIsLeftWhenTheRankIsLost) {
  TestClient streaming = ask(stream_);
  const ForwardedRequest first = take();
  ASSERT_NE(first.exchange, nullptr);
  first.exchange->start_stream("text/event-stream");
  first.exchange->write("data: 1\n\n");
  ASSERT_TRUE(streaming.until("data: 1\n\n", seconds(3)).second);
  TestClient plain = ask(body_);
  const ForwardedRequest second = take();
  ASSERT_NE(second.exchange, nullptr);
  link_->set(TestProxy::Link::frozen);
  plane(0).report_lost(1, "is silent for 3.0 s");

  EXPECT_EQ(plain.receive(seconds(2)).status, 200);
  const auto rest = streaming.until("data: [DONE]\n\n", seconds(2));
  EXPECT_TRUE(rest.second);
  EXPECT_THAT(rest.first, testing::HasSubstr("\"text\":\"here\""));
}

// An answer that is kept stays with its rank, so it is lost with it.
TEST_F(RankRouterTest, AnAnswerThatIsKeptIsLostWithItsRank) {
  TestClient streaming = ask({{"input", "x"}, {"stream", true}}, "/v1/responses");
  const ForwardedRequest first = take();
  EXPECT_EQ(first.request.header(kAnswerHeader), "");
  first.exchange->start_stream("text/event-stream");
  first.exchange->write("data: {\"text\":\"whole\"}\n\ndata: {\"text\":\"ha");
  ASSERT_TRUE(streaming.until("whole\"}\n\n", seconds(3)).second);
  TestClient plain = ask({{"input", "x"}}, "/v1/responses");
  const ForwardedRequest second = take();
  ASSERT_NE(second.exchange, nullptr);
  link_->set(TestProxy::Link::cut);
  const TestAnswer answer = plain.receive();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(error_of(answer)["code"], "lost_rank");
  EXPECT_THAT(answer.body, testing::HasSubstr("rank 1 (h1)"));
  EXPECT_NE(answer.head.find("Retry-After"), std::string::npos) << answer.head;
  const auto rest = streaming.until("lost_rank", seconds(3));
  EXPECT_TRUE(rest.second);
  EXPECT_EQ(rest.first.find("\"ha"), std::string::npos) << rest.first;  // no half event
  EXPECT_TRUE(rank_0_->engine.seen.empty());
}

TEST_F(RankRouterTest, AWrongTaleOfProgressEndsTheStream) {
  TestClient client = ask(stream_);
  const ForwardedRequest asked = take();
  asked.exchange->start_stream("text/event-stream");
  asked.exchange->write("data: 1\n\n: progress 0 x\n");
  const auto rest = client.until("data: [DONE]\n\n", seconds(3));
  EXPECT_TRUE(rest.second);
  EXPECT_THAT(rest.first, testing::HasSubstr("progress of its answer"));
}

TEST_F(RankRouterTest, ALostRankIsNeverAsked) {
  planes_[1].reset();
  ASSERT_TRUE(eventually([&] { return metric("cluster_ranks_in") == 1; }));
  EXPECT_EQ(metric("cluster_lost_ranks_total"), 1u);
  const TestAnswer answer = ask(body_).receive();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(error_of(answer)["code"], "lost_rank");
  EXPECT_THAT(answer.body, testing::HasSubstr("rank 1 (h1)"));
  EXPECT_TRUE(rank_0_->engine.seen.empty());
}

TEST_F(RankRouterTest, ARankThatShutsDownOrIsNotReachedLeavesItToThisOne) {
  TestClient client = ask({{"text", "x"}, {"sampling_params", {{"max_new_tokens", 9}}}});
  const ForwardedRequest asked = take();
  respond_error(*asked.exchange, error(ErrorCode::shutting_down, "the server is shutting down"));
  TestAnswer answer = client.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(Json::parse(answer.body)["text"], "here");
  EXPECT_EQ(rank_0_->engine.seen.size(), 1u);

  std::this_thread::sleep_for(milliseconds(1100));  // rank 1 is avoided for 1 s after a refusal
  link_.reset();
  rank_1_.reset();
  answer = ask({{"text", "x"}, {"sampling_params", {{"max_new_tokens", 9}}}}).receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(Json::parse(answer.body)["text"], "here");
  EXPECT_TRUE(eventually([&] { return metric("forwarded_requests_failed_total") == 2; }));
}

TEST_F(RankRouterTest, WhatWasHandedOverCounts) {
  rank_0_->engine.rank_loads.write({{}, {}});
  std::vector<TestClient> clients;
  const Json body = {{"input_ids", std::vector<int>(40, 7)},
                     {"sampling_params", {{"max_new_tokens", 4}}}};
  for (int i = 0; i < 6; ++i) clients.push_back(ask(body));
  // Rank 1 reports no other load, so after the first request it counts as the longer queue.
  EXPECT_TRUE(eventually([&] { return rank_0_->engine.num_seen() == 5; }));
  EXPECT_EQ(metric("forwarded_requests_total"), 1u);
  // Rank 1 reports another load, so that load includes the forwarded request.
  std::this_thread::sleep_for(milliseconds(30));
  rank_0_->engine.rank_loads.write({{.num_requests = 1, .num_tokens = 30}, {.num_tokens = 1}});
  clients.push_back(ask(body));
  EXPECT_TRUE(eventually([&] { return metric("forwarded_requests_total") == 2; }));
}

TEST_F(RankRouterTest, ADrainWaitsForWhatOtherRanksHave) {
  TestClient client = ask(body_);
  const ForwardedRequest asked = take();
  auto drained =
      std::async(std::launch::async, [&] { return rank_0_->server->drain(seconds(10)); });
  EXPECT_EQ(drained.wait_for(milliseconds(100)), std::future_status::timeout);
  asked.exchange->respond(200, "application/json", "{}");
  EXPECT_EQ(client.receive().status, 200);
  EXPECT_TRUE(drained.get());
}

TEST_F(RankRouterTest, ADrainWithoutPatienceSaysSo) {
  TestClient client = ask(body_);
  const ForwardedRequest asked = take();
  EXPECT_FALSE(rank_0_->server->drain(Duration{}));
  const TestAnswer answer = client.receive();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(error_of(answer)["code"], "shutting_down");
}

class TakesAll final : public HttpSink {
 public:
  bool head(int, HttpHeaders&&) override { return true; }
  bool body(std::string_view) override { return true; }
  void end(HttpEnd how, const std::string&) override { done.set_value(how); }
  std::promise<HttpEnd> done;
};

TEST_F(RankRouterTest, CallsHaveLimits) {
  HttpClient client({.max_calls = 2, .max_body_bytes = 100});
  const SocketAddress to = TestProxy::loopback(link_->port());
  const HttpHeaders key = {{"Authorization", fmt::format("Bearer {}", kKeyOfRank1)}};
  std::vector<std::shared_ptr<TakesAll>> sinks;
  const auto start = [&](size_t num_bytes, Duration most) {
    sinks.push_back(std::make_shared<TakesAll>());
    return client.start({.to = to,
                         .target = "/generate",
                         .body = std::string(num_bytes, ' '),
                         .headers = key,
                         .most = most},
                        sinks.back());
  };
  EXPECT_EQ(start(101, {}), 0u);
  EXPECT_NE(start(90, milliseconds(100)), 0u);
  EXPECT_EQ(start(11, {}), 0u);
  EXPECT_NE(start(10, {}), 0u);
  EXPECT_EQ(start(0, {}), 0u);
  EXPECT_EQ(sinks[1]->done.get_future().get(), HttpEnd::broken);  // its time limit has passed
  client.stop();
  EXPECT_EQ(sinks[3]->done.get_future().get(), HttpEnd::cancelled);
  EXPECT_EQ(start(0, {}), 0u);
}

}  // namespace
}  // namespace hocket
