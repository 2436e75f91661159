// Texts and tokens of prompts, and answers that end at a regular expression.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tests/test_server.h"

namespace hocket {
namespace {

TEST(Render, IsWhatTheModelReads) {
  TestServer server;
  Json body = chat_body();
  const Json rendered = server.post("/v1/chat/completions/render", body);
  EXPECT_EQ(rendered["prompt"], "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(server.post("/apply-template", body), (Json{{"prompt", rendered["prompt"]}}));
  EXPECT_EQ(server.engine.num_seen(), 0u);
  server.post("/v1/chat/completions", body);
  Json ids = Json::array();
  for (const TokenId id : server.engine.last_seen().prompt) ids.push_back(value(id));
  EXPECT_EQ(rendered["token_ids"], ids);
  EXPECT_EQ(rendered["count"], ids.size());
  EXPECT_EQ(rendered["max_tokens"], 4096 - static_cast<int>(ids.size()));
  const Json two = server.post("/v1/completions/render",
                               {{"prompt", Json::array({"a b", "c"})}, {"max_tokens", 3}});
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0]["prompt"], "a b");
  EXPECT_EQ(two[1]["max_tokens"], 3);
  body["temperature"] = 9;
  EXPECT_EQ(server.post("/apply-template", body, 400)["error"]["param"], "temperature");
}

// Arguments come as text and the template wants objects, so the prompt is not what was sent.
TEST(TextRoutes, ARenderedPromptIsTheTextOfItsTokens) {
  TestServer server;
  Json body = chat_body();
  body["messages"].push_back(
      {{"role", "assistant"},
       {"tool_calls",
        {{{"id", "c"},
          {"type", "function"},
          {"function", {{"name", "f"}, {"arguments", "{\"a\": \"Köln\"}"}}}}}}});
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", "c"}, {"content", "So."}});
  const Json rendered = server.post("/v1/chat/completions/render", body);
  const auto ids = rendered["token_ids"].get<std::vector<int>>();
  std::vector<TokenId> tokens;
  for (const int id : ids) tokens.push_back(TokenId(id));
  const std::string prompt = rendered["prompt"];
  EXPECT_EQ(prompt, bundled_text().tokenizer.decode(tokens, SpecialTokens::keep).value());
  EXPECT_NE(prompt.find("{\"a\": \"Köln\"}"), prompt.npos) << prompt;
}

TEST(Loads, TellOfEachRank) {
  TestServer server;
  const Json loads = server.get("/v1/loads");
  EXPECT_EQ(loads["dp_rank_count"], 1);
  EXPECT_EQ(loads["loads"][0]["dp_rank"], 0);
  EXPECT_EQ(loads["loads"][0]["num_running_reqs"], 0);
  EXPECT_EQ(loads["loads"][0]["num_used_tokens"], 7);
  EXPECT_EQ(loads["aggregate"]["total_reqs"], 0);
  EXPECT_EQ(server.get("/model_info"), server.get("/get_model_info"));
}

TEST(TokenizerInfo, NamesItsTokens) {
  TestServer server;
  const Json info = server.get("/tokenizer_info");
  EXPECT_EQ(info["eos_token"], "<|im_end|>");
  EXPECT_EQ(info["model_max_length"], 4096);
  TestServer without(TestServer::Text::none);
  EXPECT_EQ(without.get("/tokenizer_info", 400)["error"]["code"], "no_tokenizer");
}

TEST(StopRegex, EndsAnswersWhereverTheTokensEnd) {
  TestServer server;
  say(server, kSentence);
  server.engine.pace_us = 200;
  Json body = {{"prompt", "x"}, {"stop_regex", Json::array({"zz+", "Par[a-z]s"})}};
  const Json choice = server.post("/v1/completions", body)["choices"][0];
  EXPECT_EQ(choice["text"], "The capital of France is Paris");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["matched_stop"], "Par[a-z]s");
  const Events events = server.stream("/v1/completions", body);
  EXPECT_EQ(choice["text"], joined(events, 0, "text"));
  EXPECT_TRUE(eventually([&] { return server.engine.num_running() == 0; }));
  EXPECT_EQ(server.engine.num_aborted, 2);  // the stop ended the generation too
  // The text alone decides which of several stops ends the answer.
  body["stop"] = "of";
  EXPECT_EQ(server.post("/v1/completions", body)["choices"][0]["text"], "The capital ");
  body["stop_regex"] = "c.p";
  EXPECT_EQ(server.post("/v1/completions", body)["choices"][0]["text"], "The cap");
  // A pattern that needs the end of the text matches when the answer ends.
  body = {{"prompt", "x"}, {"stop_regex", "!$"}, {"return_token_ids", true}};
  const Json whole = server.post("/v1/completions", body)["choices"][0];
  EXPECT_EQ(whole["text"], kSentence);
  EXPECT_EQ(whole["matched_stop"], "!$");
  const Json native =
      server.post("/generate", {{"text", "x"}, {"sampling_params", {{"stop_regex", "[A-Z]ar"}}}});
  EXPECT_EQ(native["text"], "The capital of France is Par");
  EXPECT_EQ(native["meta_info"]["finish_reason"], (Json{{"type", "stop"}, {"matched", "[A-Z]ar"}}));
}

TEST(StopRegex, WhatIsWrongIsNamed) {
  TestServer server;
  const auto complaint = [&](Json regex) {
    const Json answer =
        server.post("/v1/completions", {{"prompt", "x"}, {"stop_regex", std::move(regex)}}, 400);
    EXPECT_EQ(answer["error"]["param"], "stop_regex");
    return answer["error"]["message"].get<std::string>();
  };
  EXPECT_THAT(complaint("("), testing::HasSubstr("unclosed group"));
  EXPECT_THAT(complaint("a*"), testing::HasSubstr("empty text"));
  EXPECT_THAT(complaint(""), testing::HasSubstr("empty"));
  EXPECT_THAT(complaint(5), testing::HasSubstr("string"));
  EXPECT_THAT(complaint(Json(std::vector<std::string>(17, "x"))), testing::HasSubstr("16"));
  EXPECT_THAT(complaint(std::string(1025, 'x')), testing::HasSubstr("1024"));
}

TEST(Detokenize, MakesABoundedText) {
  TestServer server;
  const Tokenizer& tokenizer = bundled_text().tokenizer;
  TokenId longest{0};
  for (int id = 0; id < tokenizer.vocab_size(); ++id)
    if (tokenizer.token_bytes(TokenId{id}).size() > tokenizer.token_bytes(longest).size())
      longest = TokenId{id};
  const size_t count = (8 << 20) / tokenizer.token_bytes(longest).size() + 1;
  const Json body = {{"tokens", std::vector<int>(count, value(longest))}};
  const Json e = server.post("/detokenize", body, 400)["error"];
  EXPECT_EQ(e["param"], "tokens");
  EXPECT_THAT(e["message"].get<std::string>(), testing::HasSubstr("at most 8388608"));
}

// Text longer than the context is counted too, up to a limit.
TEST(Tokenize, CountsABoundedText) {
  TestServer server;
  std::string words;
  while (words.size() < 400'000) words += "7 x ";
  const std::string_view fits = std::string_view(words).substr(0, 20'000);
  EXPECT_GT(server.post("/tokenize", {{"prompt", fits}})["count"], 4096);
  const Json e = server.post("/tokenize", {{"prompt", words}}, 400)["error"];
  EXPECT_EQ(e["code"], "context_length_exceeded");
  EXPECT_EQ(e["param"], "prompt");
}

}  // namespace
}  // namespace hocket
