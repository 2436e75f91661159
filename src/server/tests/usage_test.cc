// The usage of answers, in every API.
#include <gtest/gtest.h>

#include "server/tests/test_server.h"

namespace hocket {
namespace {

TEST(Usage, OfEveryApiSaysWhatWasComputedAgain) {
  TestServer server;
  const std::pair<const char*, Json> kAsked[] = {
      {"/v1/chat/completions", chat_body()},
      {"/v1/completions", {{"prompt", "Hi"}}},
      {"/v1/responses", {{"input", "Hi"}}},
      {"/v1/messages", {{"max_tokens", 9}, {"messages", chat_body()["messages"]}}},
      {"/generate", {{"text", "Hi"}}}};
  for (const int tokens : {0, 32})
    for (const auto& [path, body] : kAsked) {
      SCOPED_TRACE(path);
      server.engine.recomputed_tokens = tokens;
      say(server, "42");
      const Json answer = server.post(path, body).flatten();
      int found = 0;
      for (const auto& [key, value] : answer.items())
        if (key.ends_with("/recomputed_tokens")) found = value.get<int>();
      EXPECT_EQ(found, tokens) << answer;
    }
}

}  // namespace
}  // namespace hocket
