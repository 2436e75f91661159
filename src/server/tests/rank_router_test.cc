// The router of one rank and another rank, whose answers the test gives: bytes, faults, limits.
#include "server/tests/rank_router_testing.h"

#include <future>

#include "base/log.h"
#include "server/access/client_key.h"
#include "server/http/error_map.h"

namespace hocket {
namespace {

using std::chrono::seconds;
using RankRouterTest = ForwardingRank;

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

// A rank whose error has a code that is no text is broken, but each request ends all the same.
TEST_F(RankRouterTest, AnErrorWithoutAWordAsItsCodeIsPassedOn) {
  for (const char* const code : {"503", "null", "{}", R"(["shutting_down"])"}) {
    TestClient client = ask(body_);
    const ForwardedRequest asked = take();
    const std::string error = fmt::format(R"({{"error":{{"code":{}}}}})", code);
    ASSERT_TRUE(asked.exchange->respond(503, "application/json", error));
    const TestAnswer answer = client.receive();
    EXPECT_EQ(answer.status, 503) << code;
    EXPECT_EQ(answer.body, error);
    EXPECT_TRUE(eventually([&] { return metric("forwarded_requests") == 0; })) << code;
  }
  EXPECT_TRUE(rank_0_->server->drain(seconds(10)));
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
                         .max_time = most},
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

using PeerBookTest = Ranks;

TEST_F(PeerBookTest, AnAddressIsPublishedBeforeAnyoneMeetsTheRank) {
  start_all(3);
  PeerDirectory first(plane(0), {.host = "127.0.0.1", .port = 7000}, "key-0");
  const auto told = plane(1).get("http/0");
  ASSERT_TRUE(told) << told.error().message;
  EXPECT_EQ(*told, plane(0).self().boot_id + " 127.0.0.1:7000 key-0");
  // Rank 1 publishes none: ranks behind it are found all the same.
  const PeerDirectory last(plane(2), {.host = "127.0.0.1", .port = 7002}, "key-2");
  EXPECT_TRUE(eventually([&] { return first.endpoint(plane(2).self()).has_value(); }));
  EXPECT_TRUE(eventually([&] { return last.endpoint(plane(0).self()).has_value(); }));
  EXPECT_FALSE(first.endpoint(plane(1).self()));
  const PeerDirectory late(plane(1), {.host = "127.0.0.1", .port = 7001}, "key-1");
  EXPECT_TRUE(eventually([&] { return first.endpoint(plane(1).self()).has_value(); }));
  first.forget(2);
  EXPECT_TRUE(eventually([&] { return first.endpoint(plane(2).self()).has_value(); }));
}

TEST_F(PeerBookTest, AnAddressThatCannotBeUsedIsReportedOnce) {
  start_all(2);
  ASSERT_TRUE(plane(1).set("http/1", plane(1).self().boot_id + " no-port key-1"));
  testing::internal::CaptureStderr();
  {
    const PeerDirectory book(plane(0), {.host = "127.0.0.1", .port = 7000}, "key-0");
    std::this_thread::sleep_for(milliseconds(1300));  // it is tried again after 1 s
  }
  log::flush();
  const std::string logged = testing::internal::GetCapturedStderr();
  const std::string line = "the address of rank 1 (h1) cannot be used here";
  EXPECT_NE(logged.find(line), std::string::npos);
  EXPECT_EQ(logged.find(line), logged.rfind(line)) << logged;
}

}  // namespace
}  // namespace hocket
