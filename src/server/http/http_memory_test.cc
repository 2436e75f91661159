// Memory of requests, on real sockets: counted from a body's first byte until the last byte of the
// answer has left, and bounded.
#include <gmock/gmock.h>

#include <thread>

#include "server/http/http_testing.h"
#include "server/http/sse.h"
#include "server/usage/request_memory.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class HttpMemoryTest : public HttpTest {
 protected:
  void start_within(RequestMemoryLimits limits, HttpOptions options = {}) {
    memory_budget_ = options.memory_budget = MemoryBudget::create(limits);
    start(std::move(options));
  }
  // Returns false after 5 s.
  bool held_becomes(const std::function<bool(int64_t)>& right) {
    const auto since = std::chrono::steady_clock::now();
    while (!right(memory_budget_->held_bytes())) {
      if (std::chrono::steady_clock::now() > since + 5s) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }
  bool nothing_is_held() {
    return held_becomes([](int64_t bytes) { return bytes == 0; });
  }

  std::shared_ptr<MemoryBudget> memory_budget_;
};

TEST_F(HttpMemoryTest, RefusesABodyForWhichOthersLeaveNoRoom) {
  start_within({.total_bytes = 120'000});
  TestClient half = client();
  half.send("POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 70000\r\n\r\n" +
            std::string(60'000, 'x'));
  ASSERT_TRUE(held_becomes([](int64_t bytes) { return bytes >= 60'000; }));
  TestClient more = client();
  more.send(post("/echo", std::string(90'000, 'y')));
  const TestAnswer answer = more.receive();
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.head, HasSubstr("Retry-After: "));
  EXPECT_THAT(answer.body, HasSubstr("--total-request-memory-mib"));
  half.close();
  ASSERT_TRUE(nothing_is_held());
  TestClient later = client();
  later.send(post("/hold", std::string(70'000, 'y')));
  auto exchange = take();
  ASSERT_TRUE(exchange);
  exchange->respond(200, "text/plain", "ok");
  EXPECT_EQ(later.receive().status, 200);
  EXPECT_TRUE(nothing_is_held());
}

TEST_F(HttpMemoryTest, RefusesABodyLargerThanOneRequestMayHold) {
  start_within({.request_bytes = 50'000});
  TestClient c = client();
  c.send(post("/echo", std::string(60'000, 'x')));
  const TestAnswer answer = c.receive();
  EXPECT_EQ(answer.status, 413);
  EXPECT_THAT(answer.body, HasSubstr("--request-memory-mib"));
  EXPECT_TRUE(nothing_is_held());
}

TEST_F(HttpMemoryTest, AnAnswerIsHeldUntilItHasLeft) {
  start_within({});
  TestClient c = client(4096);
  c.send(get("/hold"));
  auto exchange = take();
  ASSERT_TRUE(exchange);
  const std::string big(16 << 20, 'x');  // more than the sockets' buffers hold
  EXPECT_TRUE(exchange->respond(200, "text/plain", big));
  EXPECT_GE(memory_budget_->held_bytes(), int64_t{16} << 20);
  EXPECT_EQ(c.receive().body.size(), big.size());
  EXPECT_TRUE(nothing_is_held());
}

TEST_F(HttpMemoryTest, AnAnswerThatDoesNotFitIsAnError) {
  start_within({.request_bytes = 100'000});
  TestClient c = client();
  c.send(get("/hold"));
  auto exchange = take();
  ASSERT_TRUE(exchange);
  EXPECT_TRUE(exchange->respond(200, "text/plain", std::string(200'000, 'x')));
  const TestAnswer answer = c.receive();
  EXPECT_EQ(answer.status, 413);
  EXPECT_THAT(answer.body, HasSubstr("--request-memory-mib"));
  EXPECT_TRUE(nothing_is_held());
}

// Probes, errors and tokens of streams are sent even if other requests hold all memory.
TEST_F(HttpMemoryTest, SmallAnswersAreNeverRefused) {
  start_within({.total_bytes = 1});
  TestClient c = client();
  c.send(get("/echo"));
  EXPECT_EQ(c.receive().status, 200);
  c.send(get("/hold"));
  SseWriter events(take());
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(events.data("a token"));
  EXPECT_TRUE(events.done());
  EXPECT_EQ(SseReader().feed(c.receive().body).size(), 11u);
}

TEST_F(HttpMemoryTest, AStreamWithoutMemoryEndsWithAnError) {
  start_within({.request_bytes = 40'000});
  for (const auto& [path, end] :
       {std::pair{"/hold", "data: [DONE]\n\n"}, {"/named", "--request-memory-mib\n\n"}}) {
    TestClient c = client();
    c.send(get(path));
    SseWriter events(take());
    EXPECT_TRUE(events.data("a token"));
    EXPECT_FALSE(events.data(std::string(60'000, 'x')));
    EXPECT_FALSE(events.data("another"));
    const TestAnswer answer = c.receive();
    EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(answer.body, testing::StartsWith("data: a token\n\n"));
    EXPECT_THAT(answer.body, HasSubstr("--request-memory-mib"));
    EXPECT_THAT(answer.body, testing::EndsWith(end));
    EXPECT_TRUE(nothing_is_held());
  }
}

TEST_F(HttpMemoryTest, AStreamWithoutEventsIsCutOff) {
  start_within({.request_bytes = 40'000});
  TestClient c = client();
  c.send(get("/hold"));
  auto exchange = take();
  ASSERT_TRUE(exchange);
  exchange->start_stream("text/plain");
  EXPECT_FALSE(exchange->write(std::string(60'000, 'x')));
  EXPECT_EQ(c.receive().status, 0);
  EXPECT_TRUE(saw_status(500));
  EXPECT_EQ(server_->counts().num_slow_total, 0u);
  EXPECT_TRUE(nothing_is_held());
}

TEST_F(HttpMemoryTest, AStreamThatNobodyReadsGivesItsMemoryBack) {
  start_within({});
  TestClient c = client(4096);
  c.send(get("/hold"));
  auto exchange = take();
  ASSERT_TRUE(exchange);
  exchange->start_stream("text/plain");
  const std::string piece(100'000, 'x');
  while (exchange->write(piece)) {
  }
  EXPECT_GT(memory_budget_->peak_held_bytes(), 1 << 20);
  EXPECT_LT(memory_budget_->peak_held_bytes(), 3 << 20);
  EXPECT_TRUE(nothing_is_held());
}

}  // namespace
}  // namespace hocket
