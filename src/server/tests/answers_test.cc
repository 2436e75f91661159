// Tool calls and reasoning in answers of /v1/chat/completions, over real sockets, with a fake model
// that returns given texts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tests/test_server.h"

namespace hocket {
namespace {

constexpr const char* kTwoCalls =
    "<think>\nTwo cities.\n</think>\n\nI'll look.\n<tool_call>\n{\"name\": \"get_weather\", "
    "\"arguments\": {\"city\": \"Köln\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": "
    "\"now\", \"arguments\": {}}\n</tool_call>";

Json tool_json(const std::string& name, const std::string& properties) {
  return Json::parse(R"({"type":"function","function":{"name":")" + name +
                     R"(","description":"d","parameters":{"type":"object","properties":)" +
                     properties + "}}}");
}

Json body_with_tools() {
  Json body = chat_body();
  body["tools"] = Json::array(
      {tool_json("get_weather", R"({"city":{"type":"string"},"days":{"type":"integer"}})"),
       tool_json("now", "{}")});
  body["stream_options"] = Json();
  return body;
}

// Returns the message that the deltas of a choice join to.
Json joined_message(const Events& events, int choice = 0) {
  Json message = {{"content", ""}, {"reasoning_content", ""}, {"tool_calls", Json::array()}};
  for (const Json& block : events.blocks)
    for (const Json& c : block["choices"]) {
      if (c["index"] != choice) continue;
      const Json& delta = c["delta"];
      for (const char* name : {"content", "reasoning_content"})
        if (delta.contains(name))
          message[name] = message[name].get<std::string>() + delta[name].get<std::string>();
      if (!delta.contains("tool_calls")) continue;
      EXPECT_EQ(delta["tool_calls"].size(), 1u);
      const Json& part = delta["tool_calls"][0];
      const auto index = part["index"].get<size_t>();
      Json& calls = message["tool_calls"];
      if (part.contains("id")) {
        EXPECT_EQ(index, calls.size());
        EXPECT_EQ(part["function"]["arguments"], "");
        calls.push_back({{"id", part["id"]},
                         {"type", part["type"]},
                         {"function", {{"name", part["function"]["name"]}, {"arguments", ""}}}});
      } else {
        Json& arguments = calls.at(index)["function"]["arguments"];
        arguments = arguments.get<std::string>() + part["function"]["arguments"].get<std::string>();
      }
    }
  return message;
}

TEST(Answers, CallsAndReasoningInOnePiece) {
  TestServer server;
  say(server, kTwoCalls);
  const Json answer = server.post("/v1/chat/completions", body_with_tools());
  const Json& choice = answer["choices"][0];
  const Json& message = choice["message"];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(message["content"], "I'll look.");
  EXPECT_EQ(message["reasoning_content"], "Two cities.");
  ASSERT_EQ(message["tool_calls"].size(), 2u);
  const Json& first = message["tool_calls"][0];
  EXPECT_EQ(first["type"], "function");
  EXPECT_EQ(first["function"]["name"], "get_weather");
  EXPECT_EQ(first["function"]["arguments"], R"({"city": "Köln", "days": 2})");
  EXPECT_THAT(first["id"].get<std::string>(), ::testing::MatchesRegex("call_[0-9A-Za-z]+"));
  EXPECT_NE(first["id"], message["tool_calls"][1]["id"]);
  const int reasoning = answer["usage"]["completion_tokens_details"]["reasoning_tokens"];
  EXPECT_GT(reasoning, 3);
  EXPECT_LT(reasoning, answer["usage"]["completion_tokens"].get<int>() / 2);
}

TEST(Answers, AStreamJoinsToTheSameMessage) {
  TestServer server;
  say(server, kTwoCalls);
  for (const bool logprobs : {false, true}) {
    Json body = body_with_tools();
    body["n"] = 2;
    if (logprobs) body["logprobs"] = true;
    const Json whole = server.post("/v1/chat/completions", body);
    const Events events = server.stream("/v1/chat/completions", body);
    ASSERT_EQ(events.status, 200);
    EXPECT_TRUE(events.done);
    EXPECT_EQ(events.blocks[0]["choices"][0]["delta"]["role"], "assistant");
    for (const int i : {0, 1}) {
      Json message = joined_message(events, i), want = whole["choices"][i]["message"];
      for (Json* m : {&message, &want})
        for (Json& call : (*m)["tool_calls"]) call.erase("id");
      EXPECT_EQ(message["content"], want["content"]);
      EXPECT_EQ(message["reasoning_content"], want["reasoning_content"]);
      EXPECT_EQ(message["tool_calls"], want["tool_calls"]);
    }
    EXPECT_GT(events.blocks.size(), 20u);  // arguments are streamed
    size_t entries = 0;
    for (const Json& block : events.blocks)
      for (const Json& c : block["choices"])
        if (c["index"] == 0 && c["logprobs"].is_object())
          entries += c["logprobs"]["content"].size();
    EXPECT_EQ(entries, logprobs ? whole["choices"][0]["logprobs"]["content"].size() : 0u);
    const Json last = events.blocks.back()["choices"][0];
    EXPECT_EQ(last["finish_reason"], "tool_calls");
    EXPECT_EQ(last["delta"], Json::object());
  }
}

TEST(Answers, WithoutParallelCallsTheFirstEndsTheAnswer) {
  TestServer server;
  say(server, kTwoCalls + std::string(4000, 'x'));
  Json body = body_with_tools();
  body["parallel_tool_calls"] = false;
  const Json answer = server.post("/v1/chat/completions", body);
  EXPECT_EQ(answer["choices"][0]["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_LT(answer["usage"]["completion_tokens"], 200);
  EXPECT_EQ(server.engine.num_aborted, 1);
}

TEST(Answers, CutAndBrokenCallsAreText) {
  TestServer server;
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\": \"Europe";
  say(server, call);
  Json body = body_with_tools();
  const Json whole = server.post("/v1/chat/completions", body)["choices"][0];
  EXPECT_EQ(whole["message"]["content"], call);
  EXPECT_FALSE(whole["message"].contains("tool_calls"));
  EXPECT_EQ(whole["finish_reason"], "stop");
  const Events events = server.stream("/v1/chat/completions", body);
  const Json message = joined_message(events);
  EXPECT_EQ(message["content"], call);
  // A client cannot run the call from the part that was sent.
  EXPECT_TRUE(Json::parse(message["tool_calls"][0]["function"]["arguments"].get<std::string>(),
                          nullptr, false)
                  .is_discarded());
  EXPECT_EQ(events.blocks.back()["choices"][0]["finish_reason"], "stop");
  body["max_tokens"] = 12;
  EXPECT_EQ(server.post("/v1/chat/completions", body)["choices"][0]["finish_reason"], "length");
}

// A call of which the model did not think is no reasoning, though no mark ended its thought.
TEST(Answers, TokensOfCallsWithinReasoningAreNotCountedAsReasoning) {
  TestServer server;
  const auto reasoning_tokens = [&](const std::string& text) {
    say(server, text);
    const Json answer = server.post("/v1/chat/completions", body_with_tools());
    return answer["usage"]["completion_tokens_details"]["reasoning_tokens"].get<int>();
  };
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const int called = reasoning_tokens("<think>\nTwo.\n" + call);
  EXPECT_GT(called, 0);
  EXPECT_LE(called, reasoning_tokens("<think>\nTwo.\n"));
  EXPECT_GT(reasoning_tokens("<think>\nTwo.\n" + call + ".\n</think>\n"), called + 5);
}

TEST(Answers, WithoutToolsCallsAreText) {
  TestServer server;
  say(server, "<tool_call>\n{\"name\": \"now\"}\n</tool_call>");
  const Json plain = server.post("/v1/chat/completions", chat_body())["choices"][0];
  EXPECT_EQ(plain["message"]["content"], "<tool_call>\n{\"name\": \"now\"}\n</tool_call>");
  Json body = body_with_tools();
  body["tool_choice"] = "none";
  const Json none = server.post("/v1/chat/completions", body)["choices"][0];
  EXPECT_EQ(none["message"], plain["message"]);
  EXPECT_EQ(
      server.engine.last_seen().prompt,
      prompt_ids({.input = ChatInput{.messages = chat_body()["messages"]}}, {},
                 {&server.engine.info(), &bundled_text().tokenizer, &bundled_text().chat_template})
          .value());
}

TEST(Answers, ReasoningAsTheRequestWantsIt) {
  TestServer server;
  say(server, "<think>\nHm.\n\nSo.\n</think>\n\n42");
  const auto message = [&](const Json& fields) {
    Json body = chat_body();
    if (fields.is_object()) body.update(fields);
    return server.post("/v1/chat/completions", body)["choices"][0]["message"];
  };
  EXPECT_EQ(message({})["reasoning_content"], "Hm.\n\nSo.");
  EXPECT_EQ(message({})["content"], "42");
  EXPECT_EQ(message({{"separate_reasoning", false}})["content"],
            "<think>\nHm.\n\nSo.\n</think>\n\n42");
  EXPECT_FALSE(message({{"include_reasoning", false}}).contains("reasoning_content"));
  EXPECT_EQ(message({{"include_reasoning", false}})["content"], "42");
  const auto num_pieces = [&](const Json& fields) {
    Json body = chat_body();
    if (fields.is_object()) body.update(fields);
    int n = 0;
    for (const Json& block : server.stream("/v1/chat/completions", body).blocks)
      n += block["choices"][0]["delta"].contains("reasoning_content");
    return n;
  };
  EXPECT_GT(num_pieces({}), 2);
  EXPECT_EQ(num_pieces({{"stream_reasoning", false}}), 1);
  EXPECT_EQ(num_pieces({{"include_reasoning", false}}), 0);
}

TEST(Answers, ReasoningThatThePromptOpens) {
  ServerSettings settings;
  settings.answers.reasoning_field = "both";
  TestServer server(TestServer::Text::bundled, settings);
  say(server, "so it is</think>42");
  Json body = chat_body();
  body["messages"].push_back({{"role", "assistant"}, {"content", "<think>\nWell, "}});
  body["continue_final_message"] = true;
  const Json message = server.post("/v1/chat/completions", body)["choices"][0]["message"];
  EXPECT_EQ(message["reasoning"], "so it is");
  EXPECT_EQ(message["reasoning_content"], "so it is");
  EXPECT_EQ(message["content"], "42");
  // If the prompt closes the reasoning, all text after it is the answer.
  body = chat_body();
  body["reasoning_effort"] = "none";
  say(server, "42</think>");
  EXPECT_EQ(server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"],
            "42</think>");
  const auto& seen = server.engine.last_seen().prompt;
  EXPECT_THAT(bundled_text().tokenizer.decode(seen, SpecialTokens::keep).value(),
              ::testing::EndsWith("<think>\n\n</think>\n\n"));
}

TEST(Answers, TheFamilyIsChosenByFlag) {
  ServerSettings settings;
  settings.answers.tool_call_parser = "pythonic";
  settings.answers.reasoning_parser = "none";
  TestServer server(TestServer::Text::bundled, settings);
  say(server, "[get_weather(city='Köln', days=2)]");
  const Json answer = server.post("/v1/chat/completions", body_with_tools());
  EXPECT_EQ(answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"],
            R"({"city": "Köln", "days": 2})");
  EXPECT_FALSE(answer["usage"].contains("completion_tokens_details"));
  const Json info = server.get("/get_server_info")["answers"];
  EXPECT_EQ(info["tool_call_parser"], "pythonic");
  EXPECT_EQ(info["tool_call_parser_from"], "flag");
  EXPECT_EQ(info["reasoning_parser"], "none");
}

TEST(Answers, ChannelsAreToldApart) {
  ServerSettings settings;
  settings.answers.tool_call_parser = "gpt-oss";
  settings.answers.reasoning_parser = "gpt-oss";
  TestServer server(TestServer::Text::bundled, settings);
  say(server,
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>42");
  const Json answer = server.post("/v1/chat/completions", chat_body());
  const Json& message = answer["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "Hm.");
  EXPECT_EQ(message["content"], "42");
  EXPECT_GT(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 0);
  Json body = chat_body();
  body["separate_reasoning"] = false;
  EXPECT_EQ(
      server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"],
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>42");
  say(server,
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
      "to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Bern\"}<|call|>more");
  const Json called = server.post("/v1/chat/completions", body_with_tools())["choices"][0];
  EXPECT_EQ(called["finish_reason"], "tool_calls");
  EXPECT_EQ(called["message"]["reasoning_content"], "Hm.");
  EXPECT_EQ(called["message"]["content"], nullptr);
  EXPECT_EQ(called["message"]["tool_calls"][0]["function"]["arguments"], R"({"city": "Bern"})");
  EXPECT_EQ(server.get("/get_server_info")["answers"]["reasoning_parser"], "gpt-oss");
}

TEST(Answers, ChannelsGoWithTheirOwnCallsOnly) {
  const auto chosen = [](const char* tools, const char* reasoning = "gpt-oss") {
    return choose_model_formats({.tool_call_parser = tools, .reasoning_parser = reasoning}, nullptr,
                                nullptr);
  };
  for (const char* tools : {"auto", "none", "openai"}) EXPECT_TRUE(chosen(tools)) << tools;
  const auto bad = chosen("hermes");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message,
            "--reasoning-parser gpt-oss does not go with --tool-call-parser "
            "hermes");
  EXPECT_TRUE(chosen("openai", "none"));
  const auto reasoning = chosen("openai", "think");
  ASSERT_FALSE(reasoning);
  EXPECT_EQ(reasoning.error().message,
            "--reasoning-parser think does not go with --tool-call-parser gpt_oss");
  EXPECT_EQ(reasoning.error().fix, "--reasoning-parser gpt-oss, or none");
}

// Each tool needs some hundreds of visits, which is allowed for one tool alone.
TEST(Answers, AllToolsShareOneBoundOfVisits) {
  TestServer server;
  Json body = body_with_tools();
  const char* circular = R"({"a":{"anyOf":[{"$ref":"#/properties/a"},{"$ref":"#/properties/a"}]}})";
  for (int i = 0; i < 1000; ++i)
    body["tools"].push_back(tool_json("f" + std::to_string(i), circular));
  const Json e = server.post("/v1/chat/completions", body, 400)["error"];
  EXPECT_EQ(e["param"], "tools") << e.dump();
  EXPECT_THAT(e["message"].get<std::string>(), ::testing::HasSubstr("more than 65536 schemas"));
}

TEST(Answers, BadToolsAreRefused) {
  TestServer server;
  const auto refused = [&](const char* fields, const char* param) {
    Json body = body_with_tools();
    body.update(Json::parse(fields));
    const Json e = server.post("/v1/chat/completions", body, 400)["error"];
    EXPECT_EQ(e["param"], param) << e.dump();
  };
  refused(R"({"tools":{}})", "tools");
  refused(R"({"tools":[5]})", "tools[0]");
  refused(R"({"tools":[{"type":"web_search"}]})", "tools[0].type");
  refused(R"({"tools":[{"type":"function"}]})", "tools[0].function");
  refused(R"({"tools":[{"function":{"description":"x"}}]})", "tools[0].function.name");
  refused(R"({"tools":[{"function":{"name":"a b"}}]})", "tools[0].function.name");
  refused(R"({"tools":[{"function":{"name":"f","parameters":[]}}]})",
          "tools[0].function.parameters");
  refused(R"({"tools":[{"function":{"name":"f"}},{"function":{"name":"f"}}]})", "tools");
  refused(R"({"tool_choice":"sometimes"})", "tool_choice");
  refused(R"({"tool_choice":{"type":"function","function":{"name":"fly"}}})", "tool_choice");
  refused(R"({"tools":[],"tool_choice":"required"})", "tool_choice");
  refused(R"({"parallel_tool_calls":"no"})", "parallel_tool_calls");
  refused(R"({"functions":[{"name":"f"}]})", "functions");
}

TEST(Answers, AllowedToolsAreBoundedAndMayBeNonsense) {
  TestServer server;
  say(server, "ok");
  Json body = body_with_tools();
  Json& choice = body["tool_choice"] =
      Json::parse(R"({"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}})");
  Json& list = choice["allowed_tools"]["tools"];
  for (const char* one : {"1", "{}", R"({"function":1})", R"({"function":{"name":[]}})"})
    list.push_back(Json::parse(one));
  server.post("/v1/chat/completions", body);
  list = std::vector<Json>(1025, Json{{"function", Json::object()}});
  const Json e = server.post("/v1/chat/completions", body, 400)["error"];
  EXPECT_EQ(e["param"], "tool_choice");
  EXPECT_EQ(e["message"], "tool_choice.allowed_tools may name 1024 tools, not 1025");
}

TEST(Answers, AllowedToolsAloneAreShown) {
  TestServer server;
  say(server, "ok");
  Json body = body_with_tools();
  body["tool_choice"] = Json::parse(R"({"type":"allowed_tools","allowed_tools":{"mode":"auto",
      "tools":[{"type":"function","function":{"name":"now"}}]}})");
  server.post("/v1/chat/completions", body);
  const auto prompt = bundled_text()
                          .tokenizer.decode(server.engine.last_seen().prompt, SpecialTokens::keep)
                          .value();
  EXPECT_THAT(prompt, ::testing::HasSubstr("\"now\""));
  EXPECT_THAT(prompt, ::testing::Not(::testing::HasSubstr("get_weather")));
}

}  // namespace
}  // namespace hocket
