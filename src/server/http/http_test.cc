// Requests on real sockets: the test writes every byte and reads every answer.
#include "server/http/http.h"

#include <gmock/gmock.h>

#include <random>
#include <thread>

#include "server/http/http_testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(HttpTest, KeepsAConnectionForManyRequests) {
  start();
  TestClient c = client();
  for (int i = 0; i < 50; ++i) {
    c.send(post("/echo?q=1", std::to_string(i)));
    const TestAnswer answer = c.receive();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "POST /echo?q=1 " + std::to_string(i));
    EXPECT_THAT(answer.head, HasSubstr("\r\nDate: "));
    EXPECT_THAT(answer.head, Not(HasSubstr("Access-Control")));
  }
  EXPECT_EQ(server_->counts().num_accepted_total, 1u);
}

TEST_F(HttpTest, AnswersPipelinedRequestsInOrder) {
  start();
  TestClient c = client();
  c.send(get("/hold") + get("/echo?2") + post("/echo?3", "three") + get("/hold") + get("/echo?5"));
  auto first = take();
  ASSERT_TRUE(first);
  std::this_thread::sleep_for(20ms);
  first->respond(200, "text/plain", "one");
  EXPECT_EQ(c.receive().body, "one");
  EXPECT_EQ(c.receive().body, "GET /echo?2 ");
  EXPECT_EQ(c.receive().body, "POST /echo?3 three");
  take()->respond(404, "text/plain", "four");
  EXPECT_EQ(c.receive().status, 404);
  EXPECT_EQ(c.receive().body, "GET /echo?5 ");
}

TEST_F(HttpTest, KeepsPipelinedBytesThatArriveWhileAnAnswerIsMade) {
  start();
  TestClient c = client();
  c.send(get("/hold"));
  auto first = take();
  ASSERT_TRUE(first);
  const std::string big(200'000, 'x');  // more than is read ahead
  c.send(post("/echo", big));
  std::this_thread::sleep_for(20ms);
  first->respond(200, "text/plain", "one");
  EXPECT_EQ(c.receive().body, "one");
  EXPECT_EQ(c.receive().body, "POST /echo? " + big);
}

TEST_F(HttpTest, ReadsABodyInPiecesAndInChunks) {
  start();
  TestClient c = client();
  for (const char b : post("/echo", "slowly")) c.send({&b, 1});
  EXPECT_EQ(c.receive().body, "POST /echo? slowly");
  c.send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  c.send("2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(c.receive().body, "POST /echo? abcde");
}

TEST_F(HttpTest, AsksForABodyThatIsExpected) {
  start();
  TestClient c = client();
  c.send("POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(c.receive().status, 100);
  c.send("ok");
  EXPECT_EQ(c.receive().body, "POST /echo? ok");
}

TEST_F(HttpTest, HeadHasNoBodyAndOptionsNoOrigin) {
  start();
  TestClient c = client();
  c.send("HEAD /echo HTTP/1.1\r\nHost: h\r\n\r\n");
  TestAnswer answer = c.receive(5s, true);
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.head, HasSubstr("Content-Length: 11"));
  c.send("OPTIONS /echo HTTP/1.1\r\nHost: h\r\nOrigin: http://evil\r\n\r\n");
  answer = c.receive();
  EXPECT_EQ(answer.status, 204);
  EXPECT_THAT(answer.head, HasSubstr("Allow: GET"));
  EXPECT_THAT(answer.head, Not(HasSubstr("Access-Control")));
  c.send(get("/echo"));
  EXPECT_EQ(c.receive().status, 200);
}

TEST_F(HttpTest, ClosesWhenAskedToAndAfterHttp10) {
  start();
  TestClient c = client();
  c.send(get("/echo", "Connection: close\r\n"));
  EXPECT_THAT(c.receive().head, HasSubstr("Connection: close"));
  EXPECT_TRUE(c.sees_end(1s));
  TestClient old = client();
  old.send("GET /hold HTTP/1.0\r\n\r\n");
  auto exchange = take();
  ASSERT_TRUE(exchange);
  exchange->start_stream("text/event-stream");
  exchange->write("data: 1\n\n");
  exchange->finish();
  const TestAnswer answer = old.receive();
  EXPECT_THAT(answer.head, Not(HasSubstr("chunked")));
  EXPECT_EQ(answer.body, "data: 1\n\n");
}

TEST_F(HttpTest, RefusesAHugeBodyWithoutReadingIt) {
  start({.max_body_bytes = 1000});
  for (const char* length : {"1001", "99999999999999"}) {
    TestClient c = client();
    c.send(fmt::format("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", length));
    const TestAnswer answer = c.receive();
    EXPECT_EQ(answer.status, 413);
    EXPECT_THAT(answer.body, StartsWith("payload_too_large: "));
    EXPECT_TRUE(c.sees_end(3s));
  }
  TestClient chunked = client();
  chunked.send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
               std::string(2000, 'x'));
  EXPECT_EQ(chunked.receive().status, 413);
}

TEST_F(HttpTest, RefusesWhatIsNotHttp) {
  start();
  const std::string h = " HTTP/1.1\r\nHost: here\r\n";
  for (const std::string& bad :
       {std::string("hello\r\n\r\n"),
        std::string("GET /echo\r\n\r\n"),
        std::string("GET /echo HTTP/9.9\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x01\r\n"),
        "GET /echo" + h + "No colon\r\n\r\n",
        "GET echo" + h + "\r\n",
        "GET /%ff" + h + "\r\n",
        "GET /\xff\xfe" + h + "\r\n",
        "GET /%0d%0a" + h + "\r\n",
        "GET /%zz" + h + "\r\n",
        "GET *" + h + "\r\n",
        "GET /echo" + h + "X: folded\r\n over\r\n\r\n",
        "GET /echo" + h + "X: a bare\n\r\n",
        "GET /echo" + h + "X: a bare\ry\r\n\r\n",
        "GET /echo" + h + "Host: another\r\n\r\n",
        std::string("GET /echo HTTP/1.1\r\n\r\n"),
        "POST /echo" + h + "Content-Length: -1\r\n\r\n",
        "POST /echo" + h + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "POST /echo" + h + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        std::string("POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        "POST /echo" + h + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"}) {
    TestClient c = client();
    c.send(bad);
    const TestAnswer answer = c.receive();
    EXPECT_EQ(answer.status, 400) << bad;
    EXPECT_THAT(answer.body, StartsWith("invalid_request: ")) << bad;
  }
}

TEST_F(HttpTest, DropsSlowHeadsAndBodiesAndIdleConnections) {
  start({.idle_timeout = 50ms, .header_timeout = 50ms, .body_timeout = 50ms});
  TestClient idle = client();
  TestClient head = client();
  head.send("GET /echo HT");
  TestClient body = client();
  body.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab");
  EXPECT_EQ(head.receive().status, 408);
  EXPECT_EQ(body.receive().status, 408);
  EXPECT_TRUE(idle.sees_end(2s));
}

// A client that sends a byte now and then is never silent, but must still be dropped.
TEST_F(HttpTest, DropsHeadsAndBodiesThatDrip) {
  start({.header_timeout = 200ms, .body_timeout = 200ms});
  for (const std::string_view begun :
       {"GET /echo HTTP/1.1\r\n",
        "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n"}) {
    TestClient c = client();
    c.send(begun);
    const auto since = std::chrono::steady_clock::now();
    TestAnswer answer;
    while (answer.status == 0 && std::chrono::steady_clock::now() < since + 5s) {
      c.send(begun.starts_with("GET") ? "X-Y: z\r\n" : "x");
      answer = c.receive(20ms);
    }
    EXPECT_EQ(answer.status, 408) << begun;
    EXPECT_LT(std::chrono::steady_clock::now() - since, 2s);
  }
}

HttpAdmission with_secret(const HttpRequest& request) {
  HttpAdmission out;
  out.headers = {{"x-always", "there"}};
  const bool open = request.path == "/health";
  const bool has_key = request.header("authorization").ends_with(" secret") ||
                       request.header("x-api-key") == "secret";
  if (!open && !has_key) out.refusal = error(ErrorCode::unauthorized, "a key is needed");
  return out;
}

TEST_F(HttpTest, AsksWhoItIsBeforeTheBody) {
  start({.admit = with_secret});
  const auto status = [&](std::string_view target, std::string_view header) {
    TestClient c = client();
    c.send(get(target, header));
    const TestAnswer answer = c.receive(500ms);
    const bool challenged = answer.head.find("WWW-Authenticate: Bearer") != std::string::npos;
    EXPECT_EQ(challenged, answer.status == 401);
    EXPECT_THAT(answer.head, HasSubstr("x-always: there\r\n"));
    return answer.status;
  };
  EXPECT_EQ(status("/echo", ""), 401);
  EXPECT_EQ(status("/metrics", ""), 401);
  EXPECT_EQ(status("/echo", "Authorization: Bearer wrong\r\n"), 401);
  EXPECT_EQ(status("/echo", "Authorization: Bearer secret2\r\n"), 401);
  EXPECT_EQ(status("/echo", "Authorization: Bearer\r\n"), 401);
  EXPECT_EQ(status("/health/../echo", ""), 401);
  EXPECT_EQ(status("/echo", "authorization: bearer  secret\r\n"), 200);
  EXPECT_EQ(status("/echo", "X-Api-Key: secret\r\n"), 200);
  TestClient probe = client();
  probe.send(get("/health"));
  auto exchange = take();
  ASSERT_TRUE(exchange);
  exchange->respond(200, "text/plain", "");
  EXPECT_EQ(probe.receive().status, 200);
  // Without a key the server does not ask for the body.
  TestClient c = client();
  c.send("POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(c.receive().status, 401);
}

TEST_F(HttpTest, SaysWhichPortIsInUse) {
  start();
  auto second = HttpServer::create({.port = server_->port(), .error_format_of = errors_of},
                                   [](HttpRequest&&, auto) {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::port_in_use);
  EXPECT_THAT(second.error().message, HasSubstr(std::to_string(server_->port())));
  EXPECT_THAT(second.error().fix, HasSubstr("--port"));
  auto nowhere = HttpServer::create({.host = "no host", .error_format_of = errors_of},
                                    [](HttpRequest&&, auto) {});
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, ErrorCode::bad_value);
}

TEST_F(HttpTest, RefusesAPortThatCannotBe) {
  HttpOptions options{.error_format_of = errors_of};
  options.port = 77777;
  const auto server =
      HttpServer::create(options, [](HttpRequest&&, const std::shared_ptr<HttpExchange>&) {});
  ASSERT_FALSE(server.has_value());
  EXPECT_EQ(server.error().message, "port 77777 is not in 0 to 65535");
}

TEST_F(HttpTest, RefusesConnectionsOverTheLimit) {
  start({.max_connections = 2});
  std::vector<TestClient> clients;
  std::vector<std::shared_ptr<HttpExchange>> exchanges;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(client());
    clients.back().send(get("/hold"));
    exchanges.push_back(take());
    ASSERT_TRUE(exchanges.back());
  }
  TestClient third = client();
  third.send(get("/echo"));
  const TestAnswer refused = third.receive();
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("all 2 connections are in use"));
  EXPECT_THAT(refused.body, HasSubstr("raise --max-connections"));
  EXPECT_EQ(server_->counts().num_refused_total, 1u);
  third.close();
  exchanges[0]->respond(200, "text/plain", "");
  EXPECT_EQ(clients[0].receive().status, 200);
  clients.front().close();
  while (server_->counts().num_connections > 1) std::this_thread::sleep_for(1ms);
  TestClient fourth = client();
  fourth.send(get("/echo"));
  EXPECT_EQ(fourth.receive().status, 200);
}

TEST_F(HttpTest, SurvivesRandomBytes) {
  start({.header_timeout = 20ms, .body_timeout = 20ms});
  std::mt19937 random(7);
  const std::string seed =
      post("/echo?a=%41", "body", "Expect: 100-continue\r\nX: y\r\n") +
      "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
  for (int i = 0; i < 300; ++i) {
    std::string bytes = seed;
    for (unsigned k = random() % 8; k > 0; --k)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (i % 3 == 0) bytes.resize(random() % bytes.size());
    TestClient c = client();
    c.send(bytes);
    if (i % 2 == 0) c.receive(2ms);
  }
  TestClient c = client();
  c.send(get("/echo"));
  EXPECT_EQ(c.receive().status, 200);
}

}  // namespace
}  // namespace hocket
