// The memory of a request is counted before it is allocated, and given back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tests/test_server.h"

namespace hocket {
namespace {

ServerSettings with_mib(int mib) {
  ServerSettings settings;
  settings.http.request_memory_mib = mib;
  return settings;
}

void expect_refused(TestServer& server, const char* path, const Json& body) {
  const Json e = server.post(path, body, 413)["error"];
  EXPECT_EQ(e["code"], "payload_too_large") << path;
  EXPECT_THAT(e["hint"].get<std::string>(), testing::HasSubstr("--request-memory-mib")) << path;
}

bool nothing_is_held(TestServer& server) {
  const std::string text = server.ask("GET", "/metrics").body;
  const size_t at = text.find("\nhocket:request_memory_bytes{");
  return at != text.npos && text.substr(text.find('}', at)).starts_with("} 0\n");
}

TEST(HeldMemory, ATreeIsRefusedBeforeItIsMade) {
  TestServer server(TestServer::Text::bundled, with_mib(1));
  const Json lists = std::vector<Json>(10'000, Json::array());
  for (const char* path : {"/v1/chat/completions", "/v1/completions", "/generate", "/v1/messages",
                           "/v1/responses", "/tokenize", "/detokenize", "/apply-template",
                           "/v1/responses/input_tokens", "/v1/messages/count_tokens"})
    expect_refused(server, path, {{"metadata", lists}});
  server.post("/v1/chat/completions", chat_body());
  EXPECT_TRUE(eventually([&] { return nothing_is_held(server); }));
}

TEST(HeldMemory, WhatAnswersHaveCopiesOfIsCounted) {
  TestServer server(TestServer::Text::bundled, with_mib(4));
  Json body = {{"prompt", "x"}, {"max_tokens", 1}, {"n", 5}};
  server.post("/v1/completions", body);
  body["stop_regex"] = "never";  // each answer's search has 1 MiB of states
  expect_refused(server, "/v1/completions", body);
  body = {{"prompt", std::vector<int>(4000, 5)}, {"max_tokens", 1}};
  server.post("/v1/completions", body);
  Json prompts = std::vector<Json>(250, body["prompt"]);
  EXPECT_EQ(server.post("/v1/completions", {{"prompt", prompts}}, 413)["error"]["code"],
            "payload_too_large");
  EXPECT_TRUE(eventually([&] { return nothing_is_held(server); }));
}

TEST(HeldMemory, WhatAnAnswerRepeatsOfItsPromptIsCounted) {
  TestServer server(TestServer::Text::bundled, with_mib(1));
  const Json plain = {{"prompt", std::vector<int>(2000, static_cast<int>(kEndToken))},
                      {"max_tokens", 1},
                      {"n", 32}};
  server.post("/v1/completions", plain);
  for (const char* repeated : {"echo", "return_token_ids"}) {
    Json body = plain;
    body[repeated] = true;
    expect_refused(server, "/v1/completions", body);
    body["n"] = 1;
    server.post("/v1/completions", body);
  }
  EXPECT_TRUE(eventually([&] { return nothing_is_held(server); }));
}

}  // namespace
}  // namespace hocket
