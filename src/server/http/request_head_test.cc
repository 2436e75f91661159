#include "server/http/request_head.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

constexpr std::string_view kHead = "GET / HTTP/1.1\r\nHost: h\r\nX:\ty\r\n\r\n";

TEST(HeadScan, FindsTheEndWhereverTheBytesAreCut) {
  const std::string bytes = std::string(kHead) + "and a body";
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    HeadScan scan;
    const auto first = scan.find_end(std::string_view(bytes).substr(0, cut));
    ASSERT_TRUE(first);
    EXPECT_EQ(*first, cut < kHead.size() ? 0 : kHead.size());
    EXPECT_EQ(scan.find_end(bytes), kHead.size());
  }
}

TEST(HeadScan, RefusesWhatNoHeadHas) {
  for (const std::string_view bad :
       {"GET / HTTP/1.1\r\nX: y\r\n z\r\n", "GET / HTTP/1.1\r\nX: y\r\n\tz\r\n", "GET / HTTP/1.1\n",
        "GET / HTTP/1.1\rX", "GET /\x01", "GET /\x7f"}) {
    const auto refused = HeadScan().find_end(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().code, ErrorCode::invalid_request);
  }
  EXPECT_FALSE(HeadScan().find_end(std::string_view("GET /\0", 6)));
}

TEST(HeadScan, TakesSoManyFieldsAndNoMore) {
  std::string bytes = "GET / HTTP/1.1\r\n";
  for (size_t i = 0; i < kMaxHeaderFields; ++i) bytes += "X: y\r\n";
  EXPECT_EQ(HeadScan().find_end(bytes + "\r\n"), bytes.size() + 2);
  const auto refused = HeadScan().find_end(bytes + "X: y\r\n");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::payload_too_large);
}

int status_of(const ParsedHead& head, const HttpHeaders& headers) {
  const auto refused = refused_head(head, headers);
  return refused ? refused->status : 200;
}

TEST(RefusedHead, OneHostOrNoneOfOldClients) {
  const ParsedHead now{.method = "GET", .target = "/"};
  const ParsedHead old{.method = "GET", .target = "/", .http_1_0 = true};
  EXPECT_EQ(status_of(now, {{"host", "h"}}), 200);
  EXPECT_EQ(status_of(now, {}), 400);
  EXPECT_EQ(status_of(now, {{"Host", "h"}, {"HOST", "h"}}), 400);
  EXPECT_EQ(status_of(old, {}), 200);
  EXPECT_EQ(status_of(old, {{"Host", "h"}, {"Host", "h"}}), 400);
}

TEST(RefusedHead, TheTargetNamesTheHostOfHost) {
  const auto status = [](std::string_view target, const char* host) {
    return status_of({.method = "GET", .target = target}, {{"Host", host}});
  };
  for (const char* same : {"http://h:1/a", "HTTP://H:1", "https://user:h@h:1?q", "/http://other/"})
    EXPECT_EQ(status(same, "h:1"), 200) << same;
  for (const char* other : {"http://evil/", "http://h/", "http://h:1@evil/", "http://h:1#@evil/"})
    EXPECT_EQ(status(other, "h:1"), 400) << other;
  EXPECT_EQ(status("http://evil/", ""), 400);
  EXPECT_EQ(status_of({.method = "GET", .target = "http://h/", .http_1_0 = true}, {}), 200);
}

TEST(RefusedHead, ChunkedIsTheOnlyTransferCoding) {
  const ParsedHead now{.method = "POST", .target = "/"};
  const ParsedHead old{.method = "POST", .target = "/", .http_1_0 = true};
  EXPECT_EQ(status_of(now, {{"Host", "h"}, {"Transfer-Encoding", "Chunked"}}), 200);
  EXPECT_EQ(status_of(now, {{"Host", "h"}, {"Transfer-Encoding", "gzip, chunked"}}), 501);
  EXPECT_EQ(status_of(now, {{"Host", "h"}, {"Transfer-Encoding", ""}}), 501);
  EXPECT_EQ(status_of(old, {{"Transfer-Encoding", "chunked"}}), 400);
}

TEST(RefusedHead, NoContentCodingIsKnown) {
  const auto status = [](const char* coding, std::pair<const char*, const char*> body) {
    return status_of({.method = "POST", .target = "/"},
                     {{"Host", "h"}, {"Content-Encoding", coding}, {body.first, body.second}});
  };
  const std::pair length("content-length", "10"), chunked("Transfer-Encoding", "chunked");
  for (const auto& body : {length, chunked}) {
    EXPECT_EQ(status("identity", body), 200);
    EXPECT_EQ(status("Identity", body), 200);
    EXPECT_EQ(status("", body), 200);
    for (const char* packed : {"gzip", "br", "identity, gzip"})
      EXPECT_EQ(status(packed, body), 415);
  }
  EXPECT_EQ(status("gzip", {"Content-Length", "0"}), 200);  // there is no body to decode
}

TEST(RefusedHead, TheStarIsForOptions) {
  EXPECT_EQ(status_of({.method = "OPTIONS", .target = "*"}, {{"Host", "h"}}), 200);
  EXPECT_EQ(status_of({.method = "GET", .target = "*"}, {{"Host", "h"}}), 400);
}

}  // namespace
}  // namespace hocket
