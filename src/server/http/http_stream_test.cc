// Answers that take time, on real sockets: streams, clients that leave or read slowly, draining.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "server/http/http_testing.h"
#include "server/http/sse.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

using HttpStreamTest = HttpTest;

TEST_F(HttpStreamTest, NoticesWithin100MsThatAClientHasLeft) {
  start();
  for (const bool streaming : {false, true}) {
    for (const bool with_reset : {false, true}) {
      TestClient c = client();
      c.send(get("/hold"));
      auto exchange = take();
      ASSERT_TRUE(exchange);
      if (streaming) exchange->start_stream("text/event-stream");
      std::atomic<int> num_calls{0};
      exchange->on_close([&] { ++num_calls; });
      std::this_thread::sleep_for(5ms);
      EXPECT_EQ(num_calls, 0);
      const auto left = std::chrono::steady_clock::now();
      with_reset ? c.reset() : c.close();
      while (num_calls == 0 && std::chrono::steady_clock::now() < left + 100ms)
        std::this_thread::sleep_for(1ms);
      EXPECT_EQ(num_calls, 1) << streaming << with_reset;
      EXPECT_TRUE(exchange->is_closed());
      EXPECT_FALSE(streaming ? exchange->write("x") : exchange->respond(200, "", ""));
      EXPECT_EQ(num_calls, 1);
    }
  }
  EXPECT_TRUE(saw_status(499));
}

// If a client has closed both directions, its machine answers the comment with a reset.
TEST_F(HttpStreamTest, AClientThatSendsNothingMoreGetsItsAnswer) {
  start();
  TestClient whole = client();
  whole.send(get("/hold"));
  auto exchange = take();
  ASSERT_TRUE(exchange);
  std::atomic<bool> left{false};
  exchange->on_close([&] { left = true; });
  whole.close_sending();
  EXPECT_EQ(whole.receive().status, 100);  // the server saw the half-close and sent it
  exchange->respond(200, "text/plain", "whole");
  EXPECT_EQ(whole.receive().body, "whole");
  EXPECT_TRUE(whole.sees_end(2s));

  TestClient stream = client();
  stream.send(get("/hold"));
  SseWriter events(take());
  events.data("1");
  EXPECT_TRUE(stream.until("data: 1\n\n", 5s).second);
  stream.close_sending();
  EXPECT_TRUE(stream.until(": ping\n\n", 5s).second);
  EXPECT_TRUE(events.data("2"));
  EXPECT_TRUE(events.done());
  EXPECT_TRUE(stream.until("data: 2\n\n", 5s).second);
  EXPECT_TRUE(stream.sees_end(2s));
  EXPECT_FALSE(left);
}

// A client of HTTP/1.0 does not know 100 Continue, so a half-close counts as leaving.
TEST_F(HttpStreamTest, AnOldClientThatSendsNothingMoreHasLeft) {
  start();
  TestClient c = client();
  c.send("GET /hold HTTP/1.0\r\n\r\n");
  auto exchange = take();
  ASSERT_TRUE(exchange);
  c.close_sending();
  EXPECT_TRUE(saw_status(499));
  EXPECT_TRUE(exchange->is_closed());
}

TEST_F(HttpStreamTest, HeadOfAStreamEndsAfterItsHead) {
  start();
  TestClient c = client();
  c.send("HEAD /hold HTTP/1.1\r\nHost: h\r\n\r\n");
  auto exchange = take();
  ASSERT_TRUE(exchange);
  EXPECT_FALSE(exchange->start_stream("text/event-stream"));
  EXPECT_TRUE(exchange->is_closed());
  EXPECT_FALSE(exchange->write("data: 1\n\n"));
  EXPECT_EQ(c.receive(5s, true).status, 200);
  c.send(get("/echo"));
  EXPECT_EQ(c.receive().status, 200);
}

TEST_F(HttpStreamTest, WhatIsThrownEndsOneRequest) {
  start();
  TestClient c = client();
  c.send(get("/hold"));
  auto exchange = take();
  ASSERT_TRUE(exchange);
  exchange->on_close([] { throw std::bad_alloc(); });
  c.close();
  const auto since = std::chrono::steady_clock::now();
  while (server_->counts().num_connections > 0 && std::chrono::steady_clock::now() < since + 5s)
    std::this_thread::sleep_for(1ms);
  EXPECT_EQ(server_->counts().num_active, 0);
  TestClient next = client();
  next.send(get("/echo"));
  EXPECT_EQ(next.receive().status, 200);
}

TEST_F(HttpStreamTest, CallsOnCloseAtOnceWhenTheClientHasLeftBefore) {
  start();
  TestClient c = client();
  c.send(get("/hold"));
  auto exchange = take();
  ASSERT_TRUE(exchange);
  c.close();
  while (!exchange->is_closed()) std::this_thread::sleep_for(1ms);
  bool called = false;
  exchange->on_close([&] { called = true; });
  EXPECT_TRUE(called);
}

TEST_F(HttpStreamTest, StreamsManyChunksAndKeepsTheConnection) {
  start();
  TestClient c = client();
  for (int round = 0; round < 2; ++round) {
    c.send(get("/hold"));
    SseWriter events(take());
    for (int i = 0; i < 5000; ++i) ASSERT_TRUE(events.data(fmt::format("{{\"i\":{}}}", i)));
    EXPECT_TRUE(events.done());
    const TestAnswer answer = c.receive();
    EXPECT_EQ(answer.status, 200);
    const auto seen = SseReader().feed(answer.body);
    ASSERT_EQ(seen.size(), 5001u);
    EXPECT_EQ(seen[4999], "{\"i\":4999}");
    EXPECT_EQ(seen[5000], kSseDone);
  }
  c.send(get("/echo"));
  EXPECT_EQ(c.receive().status, 200);
  EXPECT_EQ(server_->counts().num_accepted_total, 1u);
}

TEST_F(HttpStreamTest, PingsAQuietEventStream) {
  start({.ping_interval = 30ms});
  TestClient c = client();
  c.send(get("/hold"));
  SseWriter events(take());
  events.data("1");
  std::this_thread::sleep_for(150ms);
  events.done();
  const TestAnswer answer = c.receive();
  EXPECT_THAT(answer.body, HasSubstr(": ping\n\n"));
  EXPECT_THAT(SseReader().feed(answer.body), ElementsAre("1", kSseDone));
}

TEST_F(HttpStreamTest, DropsAClientThatDoesNotReadItsStream) {
  start({.max_buffered_bytes = 100'000});
  TestClient c = client(4096);
  c.send(get("/hold"));
  auto exchange = take();
  ASSERT_TRUE(exchange);
  std::atomic<bool> left{false};
  exchange->on_close([&] { left = true; });
  exchange->start_stream("text/plain");
  const std::string piece(10'000, 'x');
  int num_written = 0;
  while (num_written < 10'000 && exchange->write(piece)) ++num_written;
  EXPECT_LT(num_written, 10'000);
  EXPECT_TRUE(exchange->is_closed());
  EXPECT_TRUE(saw_status(499));
  EXPECT_TRUE(left);
  EXPECT_EQ(server_->counts().num_slow_total, 1u);
  EXPECT_TRUE(c.sees_end(2s));
}

// A large event does not make a client slow, nor do the small writes after it.
TEST_F(HttpStreamTest, ALargeEventIsNotASlowClient) {
  start();
  TestClient c = client();
  c.send(get("/hold"));
  SseWriter events(take());
  const std::string large(3 << 20, 'x');
  EXPECT_TRUE(events.data(large));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(events.data("a token"));
  EXPECT_TRUE(events.done());
  const auto seen = SseReader().feed(c.receive().body);
  ASSERT_EQ(seen.size(), 102u);
  EXPECT_EQ(seen[0], large);
  EXPECT_EQ(server_->counts().num_slow_total, 0u);
}

TEST_F(HttpStreamTest, DropsAClientThatTakesNoByteOfAWholeAnswer) {
  start({.write_timeout = 100ms});
  TestClient c = client(4096);
  c.send(get("/hold"));
  auto exchange = take();
  ASSERT_TRUE(exchange);
  EXPECT_TRUE(exchange->respond(200, "text/plain", std::string(64 << 20, 'x')));
  EXPECT_TRUE(saw_status(499));
}

TEST_F(HttpStreamTest, DropsAClientThatReadsDropByDrop) {
  start({.write_timeout = 200ms});
  TestClient c = client(4096);
  c.send(get("/hold"));
  auto exchange = take();
  ASSERT_TRUE(exchange);
  EXPECT_TRUE(exchange->respond(200, "text/plain", std::string(64 << 20, 'x')));
  std::atomic<bool> cut{false};
  std::thread reader([&] {  // at most 16 KiB per 60 ms, too slow for 64 KiB
    while (!cut && c.read_some(20ms)) std::this_thread::sleep_for(60ms);
  });
  EXPECT_TRUE(saw_status(499));
  cut = true;
  reader.join();
}

// Each piece is sent in time, but the whole answer would take ten times longer than the rate
// allows.
TEST_F(HttpStreamTest, DropsAClientThatReadsAWholeAnswerTooSlowly) {
  start({.write_timeout = 300ms, .min_bytes_per_s = 1 << 30});
  TestClient c = client(4096);
  c.send(get("/hold"));
  auto exchange = take();
  ASSERT_TRUE(exchange);
  EXPECT_TRUE(exchange->respond(200, "text/plain", std::string(64 << 20, 'x')));
  std::atomic<bool> cut{false};
  std::thread reader([&] {  // 16 KiB per 5 ms: 64 KiB in 20 ms
    while (!cut && c.read_some(20ms)) std::this_thread::sleep_for(5ms);
  });
  EXPECT_TRUE(saw_status(499));
  cut = true;
  reader.join();
}

TEST_F(HttpStreamTest, AnAnswerThatIsDroppedBecomes500OrACut) {
  start();
  TestClient c = client();
  c.send(get("/hold"));
  take().reset();
  EXPECT_EQ(c.receive().status, 500);
  c.send(get("/hold"));
  auto exchange = take();
  exchange->start_stream("text/plain");
  exchange->write("half");
  exchange.reset();
  EXPECT_EQ(c.receive().status, 0);
  EXPECT_TRUE(c.sees_end(1s));
}

TEST_F(HttpStreamTest, AThrowingHandlerAnswers500) {
  auto server = HttpServer::create(
      {.error_format_of = errors_of},
      [](HttpRequest&&, std::shared_ptr<HttpExchange>) { throw std::runtime_error("bug"); });
  ASSERT_TRUE(server);
  TestClient c((*server)->port());
  c.send(get("/"));
  EXPECT_EQ(c.receive().status, 500);
}

TEST_F(HttpStreamTest, HeadersCannotBeInjected) {
  start();
  TestClient c = client();
  c.send(get("/hold"));
  take()->respond(200, "text/plain", "", {{"x-request-id", "a\r\nSet-Cookie: b"}});
  EXPECT_THAT(c.receive().head, HasSubstr("x-request-id: aSet-Cookie: b\r\n"));
}

TEST_F(HttpStreamTest, DrainsStreamsAndRefusesNewConnections) {
  start();
  TestClient idle = client();
  idle.send(get("/echo"));
  EXPECT_EQ(idle.receive().status, 200);
  TestClient c = client();
  c.send(get("/hold"));
  SseWriter events(take());
  events.data("1");
  server_->stop_accepting();
  EXPECT_TRUE(idle.sees_end(1s));
  EXPECT_FALSE(client().connected());
  std::thread stopper([&] { EXPECT_TRUE(server_->stop(5s)); });
  std::this_thread::sleep_for(30ms);
  EXPECT_TRUE(events.data("2"));
  EXPECT_TRUE(events.done());
  EXPECT_THAT(SseReader().feed(c.receive().body), ElementsAre("1", "2", kSseDone));
  EXPECT_TRUE(c.sees_end(1s));
  c.close();
  stopper.join();
  EXPECT_EQ(server_->counts().num_connections, 0);
}

TEST_F(HttpStreamTest, CutsOffWhatOutlivesItsPatience) {
  start({.num_threads = 2});
  std::vector<TestClient> clients;
  std::vector<std::shared_ptr<HttpExchange>> exchanges;
  std::atomic<int> num_left{0};
  for (int i = 0; i < 4; ++i) {
    clients.push_back(client());
    clients.back().send(get("/hold"));
    exchanges.push_back(take());
    exchanges.back()->on_close([&] { ++num_left; });
  }
  EXPECT_FALSE(server_->stop(20ms));
  EXPECT_EQ(num_left, 4);
  server_.reset();
  EXPECT_FALSE(exchanges[0]->respond(200, "", "late"));
  EXPECT_TRUE(clients[0].sees_end(1s));
}

TEST_F(HttpStreamTest, Serves500StreamsAtOnce) {
  start({.num_threads = 2});
  constexpr int num_streams = 500, num_events = 20;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<TestClient> clients;
  std::vector<SseWriter> streams;
  for (int i = 0; i < num_streams; ++i) {
    clients.push_back(client());
    ASSERT_TRUE(clients.back().send(get("/hold")));
  }
  for (int i = 0; i < num_streams; ++i) streams.emplace_back(take());
  for (int e = 0; e < num_events; ++e)
    for (SseWriter& s : streams) ASSERT_TRUE(s.data("{\"token\":\"hello\"}"));
  for (SseWriter& s : streams) ASSERT_TRUE(s.done());
  int num_whole = 0;
  for (TestClient& c : clients)
    num_whole += SseReader().feed(c.receive().body).size() == num_events + 1 ? 1 : 0;
  EXPECT_EQ(num_whole, num_streams);
  const double ms = to_ms(std::chrono::steady_clock::now() - begin);
  std::printf("%d streams of %d events: %.0f ms\n", num_streams, num_events, ms);
  EXPECT_LT(ms, 10'000);
}

}  // namespace
}  // namespace hocket
