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

// A server that may draft says what drafts gave an answer, even if that is nothing; no other does.
TEST(Usage, OfDraftsHasSglangsNames) {
  TestServer server;
  say(server, "42");
  const Json body = {{"text", "Hi"}};
  EXPECT_FALSE(server.post("/generate", body)["meta_info"].contains("spec_verify_ct"));
  server.engine.info_.speculation.max_drafts = 3;
  const auto of_drafts = [&](DraftCounts drafts) {
    server.engine.drafts.write(drafts);
    const Json meta = server.post("/generate", body)["meta_info"];
    const int tokens = meta["completion_tokens"];
    EXPECT_GT(tokens, 0);
    return std::tuple(meta["spec_verify_ct"].get<int>(),
                      meta["spec_accept_length"].get<double>() / tokens,
                      meta["spec_accept_rate"].get<double>());
  };
  EXPECT_EQ(of_drafts({}), std::tuple(0, 0.0, 0.0));
  EXPECT_EQ(of_drafts({.num_verified = 4, .num_drafts = 8, .num_held = 6}),
            std::tuple(4, 0.25, 0.75));
}

}  // namespace
}  // namespace hocket
