// /v1/messages over real sockets, with a fake model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "server/apis/anthropic/content_blocks.h"
#include "server/apis/anthropic/messages_request.h"
#include "server/apis/anthropic/messages_response.h"
#include "server/generation/answer_testing.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

Json body(const char* text) {
  return Json::parse(text);
}

Json hello() {
  return body(R"({"model":"tiny","max_tokens":50,"messages":[{"role":"user","content":"Hi"}]})");
}

Json chat_messages(const Json& request) {
  Json out = Json::array();
  const auto system = request.find("system");
  const auto added =
      add_chat_messages(system == request.end() ? nullptr : &*system, request["messages"], out);
  return added ? out : Json(added.error().message);
}

TEST(Messages, ConversationsBecomeChatMessages) {
  const Json request = body(R"({"system":[{"type":"text","text":"Be brief."},
      {"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}}],
    "messages":[
      {"role":"user","content":"Weather?"},
      {"role":"assistant","content":[
      {"type":"thinking","thinking":"a tool","signature":"x"},{"type":"text","text":"Let me look."},
        {"type":"tool_use","id":"t1","name":"weather","input":{"city":"Rom"}},
        {"type":"tool_use","id":"t2","name":"weather","input":{}}]},
      {"role":"user","content":[
        {"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"sunny"}]},
        {"type":"tool_result","tool_use_id":"t2","is_error":true,"content":"no city"},
        {"type":"text","text":"And"},{"type":"text","text":"now?"}]}]})");
  EXPECT_EQ(chat_messages(request), body(R"([
      {"role":"system","content":"Be brief.\n\nBe kind."},
      {"role":"user","content":"Weather?"},
      {"role":"assistant","content":"Let me look.","reasoning_content":"a tool","tool_calls":[
       {"id":"t1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Rom\"}"}},
        {"id":"t2","type":"function","function":{"name":"weather","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"t1","name":"weather","content":"sunny"},
      {"role":"tool","tool_call_id":"t2","name":"weather","content":"no city"},
      {"role":"user","content":"And\n\nnow?"}])"));
}

TEST(Messages, WhatIsWrongIsNamed) {
  TestServer server;
  const auto complaint = [&](Json changes) {
    Json request = hello();
    request.merge_patch(changes);
    const Json answer = server.post("/v1/messages", request, 400);
    EXPECT_EQ(answer["type"], "error");
    EXPECT_EQ(answer["error"]["type"], "invalid_request_error");
    return answer["error"].value("param", Json());
  };
  EXPECT_EQ(complaint({{"max_tokens", nullptr}}), "max_tokens");
  EXPECT_EQ(complaint({{"max_tokens", 0}}), "max_tokens");
  EXPECT_EQ(complaint({{"messages", Json::array()}}), "messages");
  EXPECT_EQ(complaint({{"messages", nullptr}}), "messages");
  EXPECT_EQ(complaint(body(R"({"messages":[{"role":"system","content":"x"}]})")),
            "messages[0].role");
  EXPECT_EQ(complaint(body(R"({"messages":[{"role":"user","content":[{"type":"image"}]}]})")),
            "messages[0].content[0].type");
  EXPECT_EQ(complaint(body(R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})")),
            "messages[0].content[0].text");
  EXPECT_EQ(complaint(body(R"({"messages":[{"role":"user","content":[]}]})")),
            "messages[0].content");
  EXPECT_EQ(complaint({{"system", 5}}), "system");
  EXPECT_EQ(complaint({{"stop_sequences", Json::array({""})}}), "stop_sequences");
  EXPECT_EQ(complaint({{"temperature", 9}}), "temperature");
  EXPECT_EQ(complaint({{"max_tokns", 9}}), "max_tokns");
  EXPECT_EQ(complaint(body(R"({"tools":[{"type":"web_search_20250305","name":"web_search"}]})")),
            "tools[0].type");
  EXPECT_EQ(complaint(body(R"({"thinking":{"type":"deep"}})")), "thinking.type");
  EXPECT_EQ(complaint({{"stop_regex", "("}}), "stop_regex");
  EXPECT_EQ(complaint({{"max_tokens", 5000}}), "max_tokens");
}

TEST(Messages, ErrorsOfAllKindsHaveAnthropicsForm) {
  ServerSettings settings;
  settings.http.api_key = "secret";
  TestServer guarded(TestServer::Text::bundled, settings);
  const Json refused = guarded.post("/v1/messages", hello(), 401);
  EXPECT_EQ(refused["type"], "error");
  EXPECT_EQ(refused["error"]["type"], "authentication_error");
  TestServer server;
  EXPECT_EQ(server.get("/v1/messages", 405)["type"], "error");
  EXPECT_EQ(server.post("/v1/messages/nonsense", hello(), 404)["error"]["type"], "not_found_error");
  server.engine.refusal = error(ErrorCode::queue_full, "1024 requests wait");
  EXPECT_EQ(server.post("/v1/messages", hello(), 429)["error"]["type"], "rate_limit_error");
}

TEST(Messages, Answer) {
  TestServer server;
  say(server, "42");
  Json answer = server.post("/v1/messages", hello());
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("msg_"));
  EXPECT_TRUE(answer["timings"].is_object());
  for (const char* name : {"id", "timings"}) answer.erase(name);
  EXPECT_EQ(answer, body(R"({"type":"message","role":"assistant","model":"tiny",
    "content":[{"type":"text","text":"42"}],"stop_reason":"end_turn","stop_sequence":null,
    "usage":{"input_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":5,
             "output_tokens":3}})"));
}

TEST(Messages, HowAnswersEnd) {
  TestServer server;
  say(server, kSentence);
  Json request = hello();
  request["max_tokens"] = 3;
  EXPECT_EQ(server.post("/v1/messages", request)["stop_reason"], "max_tokens");
  request["max_tokens"] = 60;
  request["stop_sequences"] = Json::array({"zzz", "France"});
  const Json stopped = server.post("/v1/messages", request);
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "France");
  EXPECT_EQ(stopped["content"][0]["text"], "The capital of ");
}

TEST(Messages, Stream) {
  TestServer server;
  say(server, "42");
  const Events events = server.stream("/v1/messages", hello());
  ASSERT_EQ(events.status, 200);
  EXPECT_FALSE(events.done);  // this API sends no [DONE]
  std::vector<std::string> types;
  for (const Json& block : events.blocks) types.push_back(block["type"]);
  EXPECT_THAT(types, testing::ElementsAre("message_start", "content_block_start",
                                          "content_block_delta", "content_block_delta",
                                          "content_block_stop", "message_delta", "message_stop"));
  const Json& begun = events.blocks[0]["message"];
  EXPECT_EQ(begun["content"], Json::array());
  EXPECT_TRUE(begun["stop_reason"].is_null());
  EXPECT_EQ(begun["usage"]["input_tokens"], 9);
  EXPECT_EQ(events.blocks[1]["content_block"], body(R"({"type":"text","text":""})"));
  EXPECT_EQ(events.blocks[2]["delta"], body(R"({"type":"text_delta","text":"4"})"));
  EXPECT_EQ(events.blocks[5]["delta"], body(R"({"stop_reason":"end_turn","stop_sequence":null})"));
  EXPECT_EQ(events.blocks[5]["usage"]["output_tokens"], 3);
  EXPECT_EQ(events.blocks[5]["usage"]["cache_read_input_tokens"], 5);
}

TEST(Messages, EventsHaveNames) {
  TestServer server;
  say(server, "42");
  Json request = hello();
  request["stream"] = true;
  std::string text = server.ask("POST", "/v1/messages", request.dump()).body;
  EXPECT_THAT(text, testing::HasSubstr(":0\n\nevent: content_block_start\ndata: "));
  text = std::regex_replace(text, std::regex("\nid: msg_[0-9a-f]+:[0-9]+\n"), "\n");
  EXPECT_THAT(text,
              testing::StartsWith("event: message_start\ndata: {\"type\":\"message_start\","));
  EXPECT_THAT(text, testing::HasSubstr("\n\nevent: content_block_delta\ndata: "));
  EXPECT_THAT(text,
              testing::EndsWith("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
}

TEST(Messages, AStreamThatFailsSaysSo) {
  TestServer server;
  say(server, kSentence);
  server.engine.late_error = error(ErrorCode::bad_logits, "not a number");
  const Events events = server.stream("/v1/messages", hello());
  EXPECT_EQ(events.blocks.back()["type"], "error");
  EXPECT_EQ(events.blocks.back()["error"]["type"], "api_error");
  EXPECT_EQ(events.blocks.back()["error"]["message"], "not a number");
}

TEST(Messages, TokensAreCounted) {
  TestServer server;
  Json request = hello();
  request.erase("max_tokens");
  EXPECT_EQ(server.post("/v1/messages/count_tokens", request), body(R"({"input_tokens":9})"));
  request["system"] = "Be brief.";
  EXPECT_GT(server.post("/v1/messages/count_tokens", request)["input_tokens"], 9);
  EXPECT_EQ(server.engine.num_seen(), 0u);
}

TEST(Messages, AnAnswerThatWasBegunGoesOn) {
  TestServer server;
  Json request = hello();
  request["messages"].push_back({{"role", "assistant"}, {"content", "The sum is"}});
  server.post("/v1/messages", request);
  const auto text =
      bundled_text().tokenizer.decode(server.engine.last_seen().prompt, SpecialTokens::keep);
  EXPECT_THAT(*text, testing::EndsWith("The sum is"));
}

// Reasoning, text and calls, as an answer's parser reports them.
TEST(Messages, BlocksOfAllKinds) {
  ScriptedAnswer told("msg_1");
  using Kind = ScriptedAnswer::Kind;
  told.add(Kind::reasoning, "hm");
  told.add(Kind::text, "Look:");
  told.add(Kind::call, "", "f");
  told.add(Kind::arguments, "{\"a\":");
  told.add(Kind::arguments, "1}");
  told.add(Kind::call_end, "");
  told.end();
  const Json message = told.whole(messages_format());
  EXPECT_EQ(message["stop_reason"], "tool_use");
  EXPECT_EQ(message["content"], body(R"([{"type":"thinking","thinking":"hm","signature":""},
      {"type":"text","text":"Look:"},
      {"type":"tool_use","id":"call_f","name":"f","input":{"a":1}}])"));
  std::string json, types;
  for (const Json& e : told.streamed(messages_format())) {
    if (e["type"] == "content_block_start")
      types += e["content_block"]["type"].get<std::string>() + " ";
    if (e["type"] == "content_block_delta") json += e["delta"].value("partial_json", "");
  }
  EXPECT_EQ(types, "thinking text tool_use ");
  EXPECT_EQ(json, "{\"a\":1}");
}

}  // namespace
}  // namespace hocket
