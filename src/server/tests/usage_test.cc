// The usage of answers, in every API.
#include <gtest/gtest.h>

#include "server/generation/answer_testing.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

TEST(Usage, OfAPromptSaysFromWhichTierItsTokensCame) {
  ScriptedAnswer said("a");
  ChoiceAnswer& choice = said.answer.choices.front();
  choice.cached_tokens = 90;
  const auto details = [&] { return usage_json(said.answer)["prompt_tokens_details"]; };
  EXPECT_FALSE(details().contains("cached_tokens_details"));
  choice.fetched_tokens[static_cast<size_t>(PageTier::peer)] = 64;
  const Json of_peer = {{"memory", 26}, {"peer", 64}};
  EXPECT_EQ(details()["cached_tokens_details"], of_peer);
  choice.fetched_tokens[static_cast<size_t>(PageTier::file)] = 26;
  const Json of_both = {{"memory", 0}, {"file", 26}, {"peer", 64}};
  EXPECT_EQ(details()["cached_tokens_details"], of_both);
  EXPECT_EQ(details()["cached_tokens"], 90);
}

struct AskedFor {
  const char* path = nullptr;
  Json body;
};
// Returns the usage of an answer with five cached tokens: `from_file` were read from files,
// `from_peer` came from a peer, and the others were in memory.
Json usage_of(TestServer& server, const AskedFor& asked, int from_file, int from_peer) {
  server.engine.fetched.write({from_file, 0, from_peer});
  say(server, "42");
  const Json answer = server.post(asked.path, asked.body);
  return answer.contains("meta_info") ? answer["meta_info"] : answer["usage"];
}

TEST(Usage, OfEveryApiSaysFromWhichTierItsTokensCame) {
  TestServer server;
  const Json messages = {{"max_tokens", 9}, {"messages", chat_body()["messages"]}};
  const std::pair<AskedFor, const char*> kAsked[] = {
      {{"/v1/chat/completions", chat_body()}, "/prompt_tokens_details/cached_tokens_details"},
      {{"/v1/completions", {{"prompt", "The capital of France is Paris"}}},
       "/prompt_tokens_details/cached_tokens_details"},
      {{"/v1/responses", {{"input", "Hi"}}}, "/input_tokens_details/cached_tokens_details"},
      {{"/v1/messages", messages}, "/cached_tokens_details"}};
  const Json of_peer = {{"memory", 1}, {"peer", 4}};
  const Json of_both = {{"memory", 0}, {"file", 3}, {"peer", 2}};
  for (const auto& [asked, where] : kAsked) {
    SCOPED_TRACE(asked.path);
    const Json::json_pointer details(where);
    EXPECT_FALSE(usage_of(server, asked, 0, 0).contains(details));
    EXPECT_EQ(usage_of(server, asked, 0, 4)[details], of_peer);
    EXPECT_EQ(usage_of(server, asked, 3, 2)[details], of_both);
  }
}

TEST(Usage, OfGenerateHasSglangsNamesOfTiers) {
  TestServer server;
  const AskedFor asked{"/generate", {{"text", "The capital of France is Paris"}}};
  ASSERT_GE(ids_of("The capital of France is Paris").size(), 5u);
  const auto details = [&](int from_file, int from_peer) {
    return usage_of(server, asked, from_file, from_peer)["cached_tokens_details"];
  };
  EXPECT_EQ(details(0, 0), Json({{"device", 5}, {"host", 0}}));
  EXPECT_EQ(details(4, 0), Json({{"device", 1},
                                 {"host", 0},
                                 {"storage", 4},
                                 {"storage_file", 4},
                                 {"storage_backend", "file"}}));
  EXPECT_EQ(details(3, 2), Json({{"device", 0},
                                 {"host", 0},
                                 {"storage", 5},
                                 {"storage_file", 3},
                                 {"storage_peer", 2},
                                 {"storage_backend", "file+peer"}}));
}

// A stream learns at its end what was cached, so its blocks before that name no tier.
TEST(Usage, OfAStreamOfMessagesSaysTheTiersAtItsEnd) {
  TestServer server;
  server.engine.fetched.write({0, 4, 0});
  say(server, "42");
  const Events events =
      server.stream("/v1/messages", {{"max_tokens", 9}, {"messages", chat_body()["messages"]}});
  ASSERT_EQ(events.status, 200);
  EXPECT_FALSE(events.blocks.front()["message"]["usage"].contains("cached_tokens_details"));
  const Json tiers = {{"memory", 1}, {"redis", 4}};
  EXPECT_EQ(events.blocks[events.blocks.size() - 2]["usage"]["cached_tokens_details"], tiers);
}

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
    return std::tuple(meta["spec_verify_ct"].get<int>(), meta["spec_accept_length"].get<double>(),
                      meta["spec_accept_rate"].get<double>());
  };
  EXPECT_EQ(of_drafts({}), std::tuple(0, 0.0, 0.0));
  EXPECT_EQ(of_drafts({.num_verified = 4, .num_drafts = 8, .num_accepted = 6}),
            std::tuple(4, 2.5, 0.75));
}

TEST(Usage, OfAPredictionSaysWhichOfItsDraftsHeld) {
  TestServer server;
  say(server, "42");
  const Json plain = server.post("/v1/chat/completions", chat_body());
  EXPECT_EQ(plain.dump().find("accepted_prediction_tokens"), std::string::npos);
  server.engine.drafts.write({.num_verified = 4,
                              .num_drafts = 9,
                              .num_accepted = 7,
                              .num_predicted = 8,
                              .num_predicted_accepted = 6});
  const Json parts = {{{"type", "text"}, {"text", "4"}}, {{"type", "text"}, {"text", "2"}}};
  for (const Json& content : {Json("42"), parts}) {
    Json body = chat_body();
    body["prediction"] = {{"type", "content"}, {"content", content}};
    const Json details =
        server.post("/v1/chat/completions", body)["usage"]["completion_tokens_details"];
    EXPECT_EQ(details["accepted_prediction_tokens"], 6);
    EXPECT_EQ(details["rejected_prediction_tokens"], 2);
    ASSERT_NE(server.engine.seen.back().prediction, nullptr);
    EXPECT_FALSE(server.engine.seen.back().prediction->empty());
  }
}

TEST(Usage, AWrongPredictionIsRefused) {
  TestServer server;
  const auto refusal = [&](const Json& prediction) {
    Json body = chat_body();
    body["prediction"] = prediction;
    return server.post("/v1/chat/completions", body, 400)["error"]["param"];
  };
  EXPECT_EQ(refusal("42"), "prediction");
  EXPECT_EQ(refusal({{"type", "content"}}), "prediction.content");
  EXPECT_EQ(refusal({{"type", "other"}, {"content", "42"}}), "prediction.type");
  EXPECT_EQ(refusal({{"type", "content"}, {"content", 42}}), "prediction.content");
  EXPECT_EQ(refusal({{"type", "content"}, {"content", std::string(600'000, 'x')}}), "prediction");
  std::string words;
  for (int i = 0; i < 20'000; ++i) words += "a ";
  EXPECT_EQ(refusal({{"type", "content"}, {"content", words}}), "prediction");
}

}  // namespace
}  // namespace hocket
