// Clients that send without an end, on real sockets: every read has a limit.
#include <gmock/gmock.h>

#include <thread>

#include "server/http/http_testing.h"
#include "server/usage/request_memory.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class HttpBoundsTest : public HttpTest {
 protected:
  // Returns the answer to `begin` followed by `more`, repeated up to 8 MiB.
  TestAnswer answer_to_endless(std::string_view begin, std::string_view more) {
    TestClient c = client();
    c.send(begin);
    std::string piece;
    while (piece.size() < 64 << 10) piece += more;
    for (int i = 0; i < 128 && !c.has_input(); ++i)
      if (!c.send(piece)) break;
    return c.receive();
  }
  static std::string chunked(std::string_view method) {
    return fmt::format("{} /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
                       method);
  }
};

TEST_F(HttpBoundsTest, ChunkExtensions) {
  start();
  for (const char* method : {"OPTIONS", "GET", "POST"}) {
    const TestAnswer answer = answer_to_endless(chunked(method) + "1;", "a");
    EXPECT_EQ(answer.status, 431) << method;
    EXPECT_THAT(answer.body, HasSubstr("longer than 16384 bytes")) << method;
  }
}

TEST_F(HttpBoundsTest, Trailers) {
  start();
  EXPECT_EQ(answer_to_endless(chunked("POST") + "0\r\nX: ", "a").status, 431);
  EXPECT_EQ(answer_to_endless(chunked("POST") + "0\r\n", "X: y\r\n").status, 431);
}

TEST_F(HttpBoundsTest, HeadersByNumber) {
  start();
  const TestAnswer flood = answer_to_endless("GET /echo HTTP/1.1\r\nHost: h\r\n", "X: yyyy\r\n");
  EXPECT_EQ(flood.status, 431);
  EXPECT_THAT(flood.body, HasSubstr("more than 128 header fields"));
  EXPECT_TRUE(saw_status(431));
  std::string most;
  for (int i = 0; i < 127; ++i) most += "X: y\r\n";  // Host is the 128th
  TestClient c = client();
  c.send(get("/echo", most));
  EXPECT_EQ(c.receive().status, 200);
  c.send(get("/echo", most + "X: y\r\n"));
  EXPECT_EQ(c.receive().status, 431);
  EXPECT_TRUE(c.sees_end(3s));
}

TEST_F(HttpBoundsTest, HeadersBySize) {
  start({.max_header_bytes = 1000});
  const TestAnswer long_line = answer_to_endless("GET /echo HTTP/1.1\r\nX: ", "y");
  EXPECT_EQ(long_line.status, 431);
  EXPECT_THAT(long_line.body, HasSubstr("larger than 1000 bytes"));
  EXPECT_EQ(answer_to_endless("GET /", "a").status, 431);
  // The whole head comes in one piece, or after another request.
  TestClient c = client();
  c.send(get("/echo") + get("/echo", "X: " + std::string(1000, 'y') + "\r\n"));
  EXPECT_EQ(c.receive().status, 200);
  EXPECT_EQ(c.receive().status, 431);
}

// OPTIONS and probes need no key, so their bodies get almost no memory.
TEST_F(HttpBoundsTest, BodiesThatNothingNeeds) {
  start();
  for (const char* method : {"OPTIONS", "GET", "HEAD", "DELETE"}) {
    TestClient c = client();
    c.send(fmt::format("{} /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 8193\r\n\r\n", method));
    EXPECT_EQ(c.receive(5s, method == std::string_view("HEAD")).status, 413) << method;
  }
  const std::string chunk = "400\r\n" + std::string(1024, 'x') + "\r\n";
  EXPECT_EQ(answer_to_endless(chunked("OPTIONS"), chunk).status, 413);
  TestClient c = client();
  c.send("OPTIONS /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 8192\r\n\r\n" +
         std::string(8192, 'x'));
  EXPECT_EQ(c.receive().status, 204);
  c.send(get("/echo"));
  EXPECT_EQ(c.receive().status, 200);
}

TEST_F(HttpBoundsTest, TransferCodingsThatNobodyKnows) {
  start();
  for (const char* coding : {"gzip", "gzip, chunked"}) {
    TestClient c = client();
    c.send(get("/echo", fmt::format("Transfer-Encoding: {}\r\n", coding)));
    EXPECT_EQ(c.receive().status, 501) << coding;
  }
}

// A connection that only waits is closed for a new one, the longest waiting first.
TEST_F(HttpBoundsTest, IdleStrangersDoNotLockClientsOut) {
  start({.max_connections = 4});
  std::vector<TestClient> idle;
  for (int i = 0; i < 4; ++i) idle.push_back(client());
  idle[1].send("GET /echo HT");  // half a head is not yet a request
  while (server_->counts().num_connections < 4) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(150ms);  // recent connections keep their places
  std::vector<TestClient> honest;
  for (int i = 0; i < 2; ++i) {
    honest.push_back(client());
    honest.back().send(get("/echo"));
    EXPECT_EQ(honest.back().receive().status, 200);
    EXPECT_TRUE(idle[i].sees_end(2s));
  }
  EXPECT_EQ(server_->counts().num_dropped_total, 2u);
  EXPECT_EQ(server_->counts().num_refused_total, 0u);
}

// A connection whose body comes slowly counts as waiting; one whose body makes progress does not.
TEST_F(HttpBoundsTest, DrippingBodiesDoNotLockClientsOut) {
  HttpOptions options{.max_connections = 2};
  const auto memory_budget = options.memory_budget = MemoryBudget::create({});
  start(options);
  const std::string half(150'000, 'x');
  TestClient comes = client();
  comes.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n" + half);
  while (memory_budget->held_bytes() < 256 << 10)
    std::this_thread::sleep_for(1ms);  // 128 KiB were read
  TestClient drips = client();
  drips.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\nx");
  while (server_->counts().num_connections < 2) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(150ms);  // recent connections keep their places
  TestClient honest = client();
  honest.send(get("/echo"));
  EXPECT_EQ(honest.receive().status, 200);
  EXPECT_TRUE(drips.sees_end(2s));
  comes.send(half);
  EXPECT_EQ(comes.receive().status, 200);
}

TEST_F(HttpBoundsTest, ProbesAreAnsweredWhenEveryConnectionIsTaken) {
  start({.max_connections = 1, .probes = {"/echo"}});
  TestClient busy = client();
  busy.send(get("/hold"));
  auto exchange = take();
  ASSERT_TRUE(exchange);
  // These are more than the spare connections, and none sends anything.
  std::vector<TestClient> mute;
  for (int i = 0; i < 200; ++i) mute.push_back(client());
  TestClient probe = client();
  probe.send(get("/echo"));
  const TestAnswer answer = probe.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.head, HasSubstr("Connection: close"));
  TestClient other = client();
  other.send(get("/other"));
  EXPECT_EQ(other.receive().status, 503);
  exchange->respond(200, "text/plain", "");
  EXPECT_EQ(busy.receive().status, 200);
}

}  // namespace
}  // namespace hocket
