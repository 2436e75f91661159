#include "server/ranks/client_key.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

HttpRequest from(std::string client, HttpHeaders headers = {}) {
  HttpRequest request;
  request.client = std::move(client);
  request.headers = std::move(headers);
  return request;
}

HttpRequest of(const Principal& principal, HttpRequest request) {
  request.principal = std::make_shared<const Principal>(principal);
  return request;
}

TEST(ClientKey, IsTheOwnKeyElseTheUserElseTheAddress) {
  const HttpRequest plain = from("10.0.0.1:4000");
  const HttpRequest keyed = from("10.0.0.1:4000", {{"Authorization", "Bearer abc"}});
  EXPECT_EQ(client_key(plain, ""), client_key(from("10.0.0.1:4001"), ""));
  EXPECT_NE(client_key(plain, ""), client_key(from("10.0.0.2:4000"), ""));
  EXPECT_EQ(client_key(plain, "ann"), client_key(from("10.0.0.2:1"), "ann"));
  EXPECT_NE(client_key(plain, "ann"), client_key(plain, "bob"));
  EXPECT_EQ(client_key(keyed, "ann"), client_key(keyed, "bob"));
  EXPECT_EQ(client_key(keyed, ""), client_key(from("10.0.0.9:1", {{"x-api-key", "abc"}}), ""));
}

TEST(ClientKey, AKeyThatClientsShareTellsNobodyApart) {
  const HttpRequest keyed =
      of({.name = "api-key"}, from("10.0.0.1:4000", {{"Authorization", "Bearer abc"}}));
  EXPECT_NE(client_key(keyed, "ann"), client_key(keyed, "bob"));
  EXPECT_EQ(client_key(keyed, ""), client_key(from("10.0.0.1:1"), ""));
}

TEST(ClientKey, IsThePrincipalWithAKeyOfItsOwn) {
  const Principal ann{.name = "ann", .alone = true}, bob{.name = "bob", .alone = true};
  const HttpRequest here = from("10.0.0.1:1"), there = from("10.0.0.2:1");
  EXPECT_EQ(client_key(of(ann, here), "x"), client_key(of(ann, there), "y"));
  EXPECT_NE(client_key(of(ann, here), ""), client_key(of(bob, here), ""));
}

TEST(ClientKey, KindsDoNotMix) {
  EXPECT_NE(name_key("user", "10.0.0.1"), name_key("address", "10.0.0.1"));
  EXPECT_EQ(name_key("user", ""), 0u);
}

}  // namespace
}  // namespace hocket
