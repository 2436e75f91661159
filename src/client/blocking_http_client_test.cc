// Tests the client against servers that answer with no end.
#include "client/blocking_http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "client/fake_server_testing.h"

namespace hocket {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr const char* kChunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr const char* kChunk = "4\r\nabcd\r\n";

BlockingHttpClient::Options options_of(const FakeServer& server) {
  return {.port = server.port(), .timeout_s = 10, .max_body_s = 10, .max_body_bytes = 1000};
}
Error error_of(FakeServer::Answer answer) {
  const FakeServer server(std::move(answer));
  const auto got = BlockingHttpClient(options_of(server)).get("/");
  return got ? Error() : got.error();
}

TEST(BlockingHttpClient, AnAnswerHasALimitOfBytes) {
  EXPECT_THAT(error_of({.head = kChunked, .piece = kChunk}).message,
              HasSubstr("is longer than 1000 bytes"));
  EXPECT_THAT(error_of({.head = "HTTP/1.1 200 OK\r\nContent-Length: 99000000000000\r\n\r\n",
                        .piece = "abcd"})
                  .message,
              HasSubstr("is longer than 1000 bytes"));
  // The beginning of a chunk that never ends.
  const Error endless =
      error_of({.head = kChunked + std::string("4;"), .piece = std::string(4096, 'x')});
  EXPECT_EQ(endless.code, ErrorCode::io);
  EXPECT_THAT(endless.message, HasSubstr("the head of a chunk is longer than 262144 bytes"));
}

TEST(BlockingHttpClient, AFileOfCertificatesThatCannotBeReadIsNamedWithItsFlag) {
  const auto got = BlockingHttpClient({.tls = true, .ca_file = "/nowhere/ca.pem"}).get("/");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, ErrorCode::io);
  EXPECT_EQ(got.error().param, "ssl-ca");
  EXPECT_THAT(got.error().message,
              HasSubstr("--ssl-ca /nowhere/ca.pem: no certificate can be read there: "));
  EXPECT_THAT(got.error().fix, HasSubstr("--ssl-ca FILE"));
}

// The rest of an answer whose callback threw is not taken for the next one.
TEST(BlockingHttpClient, AnAnswerThatWasLeftEndsItsConnection) {
  const FakeServer server({.head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                   "Transfer-Encoding: chunked\r\n\r\n",
                           .piece = "b\r\ndata: 123\n\n\r\n",
                           .num_pieces = 1000,
                           .num_connections = 2});
  BlockingHttpClient client(options_of(server));
  const auto leave = [](std::string_view) { throw std::runtime_error("left"); };
  EXPECT_THROW(static_cast<void>(client.stream("/", "{}", leave)), std::runtime_error);
  int num_events = 0;
  static_cast<void>(client.stream("/", "{}", [&](std::string_view) { ++num_events; }));
  EXPECT_EQ(num_events, 1000);
}

TEST(BlockingHttpClient, AnAnswerThatTricklesHasALimitOfTime) {
  const FakeServer server({.head = kChunked, .piece = kChunk, .pause = milliseconds(20)});
  auto options = options_of(server);
  options.max_body_s = 0.1;
  const auto got = BlockingHttpClient(options).get("/");
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().message, HasSubstr("is longer than 0.1 s"));
}

TEST(BlockingHttpClient, AnAnswerWhoseBytesAreAlwaysThereHasThatLimitToo) {
  const FakeServer server({.head = kChunked, .piece = kChunk});
  auto options = options_of(server);
  options.max_body_s = 0.05;
  options.max_body_bytes = size_t{1} << 40;
  const auto got = BlockingHttpClient(options).get("/");
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().message, HasSubstr("is longer than 0.05 s"));
}

TEST(BlockingHttpClient, AStreamOfEventsMayBeLonger) {
  const FakeServer server({.head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                   "Transfer-Encoding: chunked\r\n\r\n",
                           .piece = "b\r\ndata: 123\n\n\r\n",
                           .num_pieces = 1000});
  int num_events = 0;
  const auto got = BlockingHttpClient(options_of(server)).stream("/", "{}", [&](std::string_view) {
    ++num_events;
  });
  EXPECT_EQ(num_events, 1000);
  EXPECT_EQ(got.error().code, ErrorCode::io) << "the last chunk is missing";
}

TEST(BlockingHttpClient, AnAnswerWithoutALengthEndsWithTheConnection) {
  const FakeServer server({.head = "HTTP/1.1 200 OK\r\n\r\n", .piece = "abcd", .num_pieces = 3});
  const auto got = BlockingHttpClient(options_of(server)).get("/");
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->body, "abcdabcdabcd");
}

TEST(BlockingHttpClient, AShortAnswerIsAnError) {
  EXPECT_THAT(error_of({.head = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
                        .piece = "abcd",
                        .num_pieces = 2})
                  .message,
              HasSubstr("it ended the connection"));
}

// The server says that it keeps the connection, and ends it after the answer.
TEST(BlockingHttpClient, AKeptConnectionThatEndedIsMadeAgain) {
  const FakeServer server({.head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n",
                           .piece = "abcd",
                           .num_pieces = 1,
                           .num_connections = 2});
  BlockingHttpClient client(options_of(server));
  for (int i = 0; i < 2; ++i) {
    const auto got = client.get("/");
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->body, "abcd");
  }
}

}  // namespace
}  // namespace hocket
