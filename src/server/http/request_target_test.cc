#include "server/http/request_target.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

TEST(RequestTarget, IsDecodedAndChecked) {
  const auto t = parse_request_target("/v1/mod%C3%A9ls?x=%20");
  ASSERT_TRUE(t);
  EXPECT_EQ(t->path, "/v1/mod\xC3\xA9ls");
  EXPECT_EQ(t->query, "x=%20");
  EXPECT_EQ(parse_request_target("http://h:1/a?b")->path, "/a");
  EXPECT_EQ(parse_request_target("http://h:1")->path, "/");
  EXPECT_EQ(parse_request_target("http://h?q")->query, "q");
  for (const char* bad : {"", "a", "/a%2", "/%", "/%g0", "/%ff", "/%00", "http:/", "ftp://h/a"})
    EXPECT_FALSE(parse_request_target(bad)) << bad;
  for (const char* path : {"/", "/v1/a b", "/a?b#c", "/100%25", "/mod\xC3\xA9ls/:@&=+$,;!'()*~"})
    EXPECT_EQ(parse_request_target(encode_path(path))->path, path);
  EXPECT_EQ(encode_path("/v1/resp_1?%"), "/v1/resp_1%3F%25");
}

}  // namespace
}  // namespace hocket
