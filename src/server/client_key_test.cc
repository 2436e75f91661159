#include "server/client_key.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

HttpRequest from(std::string client, HttpHeaders headers = {}) {
  HttpRequest request;
  request.client = std::move(client);
  request.headers = std::move(headers);
  return request;
}

TEST(ClientKey, IsTheOwnKeyElseTheUserElseTheAddress) {
  const HttpRequest plain = from("10.0.0.1:4000");
  const HttpRequest keyed = from("10.0.0.1:4000", {{"Authorization", "Bearer abc"}});
  EXPECT_EQ(client_key(plain, "", ""), client_key(from("10.0.0.1:4001"), "", ""));
  EXPECT_NE(client_key(plain, "", ""), client_key(from("10.0.0.2:4000"), "", ""));
  EXPECT_EQ(client_key(plain, "", "ann"), client_key(from("10.0.0.2:1"), "", "ann"));
  EXPECT_NE(client_key(plain, "", "ann"), client_key(plain, "", "bob"));
  EXPECT_EQ(client_key(keyed, "", "ann"), client_key(keyed, "", "bob"));
  EXPECT_EQ(client_key(keyed, "", ""),
            client_key(from("10.0.0.9:1", {{"x-api-key", "abc"}}), "", ""));
}

TEST(ClientKey, TheServersKeyTellsNobodyApart) {
  const HttpRequest keyed = from("10.0.0.1:4000", {{"Authorization", "Bearer abc"}});
  EXPECT_NE(client_key(keyed, "abc", "ann"), client_key(keyed, "abc", "bob"));
  EXPECT_EQ(client_key(keyed, "abc", ""), client_key(from("10.0.0.1:1"), "", ""));
}

TEST(ClientKey, KindsDoNotMix) {
  EXPECT_NE(name_key("user", "10.0.0.1"), name_key("address", "10.0.0.1"));
  EXPECT_EQ(name_key("user", ""), 0u);
}

}  // namespace
}  // namespace hocket
