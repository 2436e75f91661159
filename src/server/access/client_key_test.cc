#include "server/access/client_key.h"

#include <gtest/gtest.h>

#include "core/client_name.h"
#include "server/access/request_sender.h"

namespace hocket {
namespace {

uint64_t claimed(const HttpRequest& request, std::string_view user) {
  return claimed_client(client_key(request, user));
}

uint64_t proven(const HttpRequest& request, std::string_view user) {
  return proven_client(client_key(request, user));
}

HttpRequest from(std::string client, HttpHeaders headers = {}) {
  HttpRequest request;
  request.client = std::move(client);
  request.headers = std::move(headers);
  return request;
}

HttpRequest of(const Principal& principal, HttpRequest request) {
  request.sender = std::make_shared<const RequestSender>(
      RequestSender{.principal = std::make_shared<const Principal>(principal)});
  return request;
}

TEST(ClientKey, IsTheOwnKeyElseTheUserElseTheAddress) {
  const HttpRequest plain = from("10.0.0.1:4000");
  const HttpRequest keyed = from("10.0.0.1:4000", {{"Authorization", "Bearer abc"}});
  EXPECT_EQ(claimed(plain, ""), claimed(from("10.0.0.1:4001"), ""));
  EXPECT_NE(claimed(plain, ""), claimed(from("10.0.0.2:4000"), ""));
  EXPECT_EQ(claimed(plain, "ann"), claimed(from("10.0.0.2:1"), "ann"));
  EXPECT_NE(claimed(plain, "ann"), claimed(plain, "bob"));
  EXPECT_EQ(claimed(keyed, "ann"), claimed(keyed, "bob"));
  EXPECT_EQ(claimed(keyed, ""), claimed(from("10.0.0.9:1", {{"x-api-key", "abc"}}), ""));
}

TEST(ClientKey, AKeyThatClientsShareTellsNobodyApart) {
  const HttpRequest keyed =
      of({.name = "api-key"}, from("10.0.0.1:4000", {{"Authorization", "Bearer abc"}}));
  EXPECT_NE(claimed(keyed, "ann"), claimed(keyed, "bob"));
  EXPECT_EQ(claimed(keyed, ""), claimed(from("10.0.0.1:1"), ""));
}

// Otherwise one client could have a thousand turns.
TEST(ClientKey, NeitherAUserNorAKeyThatNobodyChecksProvesAnything) {
  const HttpRequest plain = from("10.0.0.1:4000");
  const HttpRequest keyed = from("10.0.0.1:4001", {{"Authorization", "Bearer abc"}});
  EXPECT_EQ(proven(plain, "ann"), proven(plain, "bob"));
  EXPECT_EQ(proven(plain, "ann"), proven(keyed, ""));
  EXPECT_EQ(proven(plain, ""), proven(of({.name = "api-key"}, keyed), "ann"));
  EXPECT_NE(proven(plain, "ann"), proven(from("10.0.0.2:4000"), "ann"));
  const Principal ann{.name = "ann", .alone = true}, bob{.name = "bob", .alone = true};
  EXPECT_EQ(proven(of(ann, plain), ""), proven(of(ann, from("10.0.0.2:1")), "x"));
  EXPECT_NE(proven(of(ann, plain), ""), proven(of(bob, plain), ""));
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

// A client that sends the header of ranks itself does not change its name.
TEST(ClientKey, OnlyARankTellsForWhomItAsks) {
  HttpRequest request = from("10.0.0.1:1", {{kClientHeader, std::to_string(client_name(77, 5))}});
  EXPECT_EQ(proven_client_hash(request), proven(from("10.0.0.1:2"), ""));
  request.sender = std::make_shared<const RequestSender>(
      RequestSender{.principal = std::make_shared<const Principal>(), .is_rank = true});
  EXPECT_EQ(proven_client_hash(request), 77u);
  HttpRequest untold = from("10.0.0.1:1");
  untold.sender = request.sender;
  EXPECT_EQ(proven_client_hash(untold), proven(untold, ""));
}

}  // namespace
}  // namespace hocket
