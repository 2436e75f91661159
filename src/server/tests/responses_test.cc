// /v1/responses over real sockets, with a fake model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/apis/responses/response_items.h"
#include "server/apis/responses/responses_request.h"
#include "server/apis/responses/responses_response.h"
#include "server/generation/answer_testing.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

using testing::ElementsAre;

Json json(const char* text) {
  return Json::parse(text);
}

Json chat_messages(const char* items, Json out = Json::array()) {
  const auto added = add_items(json(items), "input", out);
  return added ? out : Json(added.error().param + ": " + added.error().message);
}

std::string prompt_of(const RequestInput& input) {
  return bundled_text().tokenizer.decode(input.prompt, SpecialTokens::keep).value();
}

TEST(ResponseItems, BecomeChatMessages) {
  EXPECT_EQ(chat_messages(R"([{"role":"developer","content":"Be kind."},
      {"type":"message","role":"user","content":[{"type":"input_text","text":"Weather?"}]},
{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"a tool"}]},
     {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me look."}]},
      {"type":"function_call","call_id":"c1","name":"weather","arguments":"{\"city\":\"Rom\"}"},
      {"type":"function_call","call_id":"c2","name":"clock","arguments":"{}"},
      {"type":"function_call","call_id":"c3","name":"clock","arguments":"{","status":"incomplete"},
      {"type":"function_call_output","call_id":"c1","output":"sunny"},
      {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"noon"}]},
      {"type":"reasoning","summary":[{"type":"summary_text","text":"done"}]},
      {"role":"assistant","content":"Sunny."}])",
                          json(R"([{"role":"system","content":"Be brief."}])")),
            json(R"([{"role":"system","content":"Be brief.\n\nBe kind."},
      {"role":"user","content":"Weather?"},
      {"role":"assistant","content":"Let me look.","reasoning_content":"a tool","tool_calls":[
       {"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Rom\"}"}},
        {"id":"c2","type":"function","function":{"name":"clock","arguments":"{}"}}]},
      {"role":"tool","tool_call_id":"c1","name":"weather","content":"sunny"},
      {"role":"tool","tool_call_id":"c2","name":"clock","content":"noon"},
      {"role":"assistant","content":"Sunny.","reasoning_content":"done"}])"));
}

// A tool's name is found by the id of its call, in this turn or an earlier one, in time that does
// not grow with the conversation.
TEST(ResponseItems, ManyResultsFindTheirCalls) {
  constexpr int kCalls = 8000;
  Json items = Json::array();
  for (int i = 0; i < kCalls; ++i)
    items.push_back({{"type", "function_call"},
                     {"call_id", fmt::format("c{}", i)},
                     {"name", fmt::format("f{}", i)},
                     {"arguments", "{}"}});
  for (int i = 0; i < kCalls; ++i)
    items.push_back(
        {{"type", "function_call_output"}, {"call_id", fmt::format("c{}", i)}, {"output", "x"}});
  Json messages = Json::array();
  ASSERT_TRUE(add_items(items, "input", messages));
  ASSERT_EQ(messages.size(), 1u + kCalls);
  for (int i = 0; i < kCalls; ++i)
    EXPECT_EQ(messages[static_cast<size_t>(i) + 1]["name"], fmt::format("f{}", i));
  // A call of an earlier turn is found too.
  const Json later = Json::array({items.back()});
  ASSERT_TRUE(add_items(later, "input", messages));
  EXPECT_EQ(messages.back()["name"], fmt::format("f{}", kCalls - 1));
}

TEST(ResponseItems, WhatIsWrongIsNamed) {
  EXPECT_THAT(chat_messages(R"(["x"])").get<std::string>(), testing::StartsWith("input[0]: "));
  EXPECT_THAT(chat_messages(R"([{"type":"item_reference","id":"x"}])").get<std::string>(),
              testing::StartsWith("input[0].type: "));
  EXPECT_THAT(chat_messages(R"([{"role":"tool","content":"x"}])").get<std::string>(),
              testing::StartsWith("input[0].role: "));
  EXPECT_THAT(
      chat_messages(R"([{"role":"user","content":[{"type":"input_image"}]}])").get<std::string>(),
      testing::StartsWith("input[0].content[0].type: "));
  EXPECT_THAT(chat_messages(R"([{"type":"function_call","name":"f"}])").get<std::string>(),
              testing::StartsWith("input[0].call_id: "));
}

TEST(Responses, Answer) {
  TestServer server;
  say(server, "42");
  Json answer = server.post("/v1/responses", {{"input", "Hi"}, {"metadata", {{"a", "b"}}}});
  const std::string id = answer["id"];
  EXPECT_TRUE(id.starts_with("resp_"));
  EXPECT_EQ(answer["object"], "response");
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["output"].size(), 1u);
  EXPECT_TRUE(answer["output"][0]["id"].get<std::string>().starts_with("msg_"));
  answer["output"][0].erase("id");
  EXPECT_EQ(answer["output"][0], json(R"({"type":"message","status":"completed","role":"assistant",
      "content":[{"type":"output_text","text":"42","annotations":[],"logprobs":[]}]})"));
  EXPECT_EQ(answer["usage"], json(R"({"input_tokens":9,
      "input_tokens_details":{"cached_tokens":5,"cache_write_tokens":0},"output_tokens":3,
      "output_tokens_details":{"reasoning_tokens":0},"total_tokens":12})"));
  EXPECT_EQ(answer["metadata"]["a"], "b");
  EXPECT_EQ(answer["text"], json(R"({"format":{"type":"text"}})"));
  EXPECT_TRUE(answer["error"].is_null());
}

TEST(Responses, Stream) {
  TestServer server;
  say(server, "42");
  const Events events = server.stream("/v1/responses", {{"input", "Hi"}});
  ASSERT_EQ(events.status, 200);
  EXPECT_FALSE(events.done);  // this API sends no [DONE]
  std::vector<std::string> types;
  int number = 0;
  for (const Json& block : events.blocks) {
    types.push_back(block["type"].get<std::string>().substr(9));
    EXPECT_EQ(block["sequence_number"], number++);
  }
  EXPECT_THAT(types,
              ElementsAre("created", "in_progress", "output_item.added", "content_part.added",
                          "output_text.delta", "output_text.delta", "output_text.done",
                          "content_part.done", "output_item.done", "completed"));
  EXPECT_EQ(events.blocks[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events.blocks[0]["response"]["output"], Json::array());
  EXPECT_TRUE(events.blocks[0]["response"]["usage"].is_null());
  EXPECT_EQ(events.blocks[4]["delta"], "4");
  EXPECT_EQ(events.blocks[6]["text"], "42");
  const Json& whole = events.blocks.back()["response"];
  EXPECT_EQ(whole["output"][0], events.blocks[8]["item"]);
  EXPECT_EQ(whole["id"], events.blocks[0]["response"]["id"]);
  EXPECT_EQ(server.get("/v1/responses/" + whole["id"].get<std::string>()), whole);
}

// The value is in three events, each larger than the bytes that may wait for a slow client.
TEST(Responses, AStreamRepeatsWhatWasAskedForHoweverLong) {
  TestServer server;
  say(server, "42");
  const std::string value(1'200'000, 'A');
  const Events events =
      server.stream("/v1/responses", {{"input", "Hi"}, {"metadata", {{"x", value}}}});
  ASSERT_EQ(events.status, 200);
  int num_repeated = 0;
  for (const Json& event : events.blocks) {
    if (!event.contains("response")) continue;
    ++num_repeated;
    EXPECT_TRUE(event["response"]["metadata"]["x"] == value);
  }
  EXPECT_EQ(num_repeated, 3);
  EXPECT_EQ(events.blocks.back()["type"], "response.completed");
}

TEST(Responses, HowAnswersEnd) {
  TestServer server;
  say(server, kSentence);
  const Json cut = server.post("/v1/responses", {{"input", "x"}, {"max_output_tokens", 2}});
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(server.stream("/v1/responses", {{"input", "x"}, {"max_output_tokens", 2}})
                .blocks.back()["type"],
            "response.incomplete");
  server.engine.late_error = error(ErrorCode::bad_logits, "not a number");
  const Events failed = server.stream("/v1/responses", {{"input", "x"}});
  EXPECT_EQ(failed.blocks.back()["type"], "response.failed");
  EXPECT_EQ(failed.blocks.back()["response"]["status"], "failed");
  EXPECT_EQ(failed.blocks.back()["response"]["error"]["message"], "not a number");
  EXPECT_EQ(server.post("/v1/responses", {{"input", "x"}}, 500)["error"]["code"], "bad_logits");
}

TEST(Responses, ConversationsGoOn) {
  TestServer server;
  say(server, "42");
  const Json first =
      server.post("/v1/responses", {{"input", "What is 17 + 25?"}, {"instructions", "Sums only."}});
  const Json second =
      server.post("/v1/responses", {{"input", "Twice?"}, {"previous_response_id", first["id"]}});
  EXPECT_EQ(second["previous_response_id"], first["id"]);
  const std::string prompt = prompt_of(server.engine.last_seen());
  EXPECT_THAT(prompt, testing::HasSubstr("What is 17 + 25?"));
  EXPECT_THAT(prompt, testing::HasSubstr("assistant\n42<|im_end|>\n<|im_start|>user\nTwice?"));
  EXPECT_THAT(prompt, testing::Not(testing::HasSubstr("Sums only.")));  // for one answer only
  const std::string id = second["id"];
  const Json items = server.get("/v1/responses/" + id + "/input_items?order=asc");
  ASSERT_EQ(items["data"].size(), 3u);
  EXPECT_EQ(items["data"][1], first["output"][0]);
  EXPECT_EQ(items["has_more"], false);
  const Json page = server.get("/v1/responses/" + id + "/input_items?limit=1");
  EXPECT_EQ(page["data"][0]["content"][0]["text"], "Twice?");  // the newest first
  EXPECT_EQ(page["has_more"], true);
  const Json next = server.get("/v1/responses/" + id +
                               "/input_items?limit=1&after=" + page["last_id"].get<std::string>());
  EXPECT_EQ(next["data"][0], first["output"][0]);
  server.get("/v1/responses/" + id + "/input_items?limit=0", 400);
  // The earlier answer may be deleted.
  EXPECT_EQ(server.ask("DELETE", "/v1/responses/" + first["id"].get<std::string>()).status, 200);
  server.get("/v1/responses/" + first["id"].get<std::string>(), 404);
  server.post("/v1/responses", {{"input", "x"}, {"previous_response_id", id}});
  server.post("/v1/responses", {{"input", "x"}, {"previous_response_id", first["id"]}}, 404);
}

TEST(Responses, AreKeptOnlyWhereWanted) {
  TestServer server;
  say(server, "42");
  const Json answer = server.post("/v1/responses", {{"input", "x"}, {"store", false}});
  EXPECT_EQ(answer["store"], false);
  server.get("/v1/responses/" + answer["id"].get<std::string>(), 404);
  ServerSettings settings;
  settings.http.response_store_mib = 0;
  TestServer forgetful(TestServer::Text::bundled, settings);
  const Json unkept = forgetful.post("/v1/responses", {{"input", "x"}, {"max_output_tokens", 3}});
  EXPECT_EQ(unkept["store"], false);
  forgetful.post("/v1/responses", {{"input", "x"}, {"background", true}}, 400);
}

TEST(Responses, InTheBackground) {
  TestServer server;
  say(server, "42");
  const Json begun = server.post("/v1/responses", {{"input", "x"}, {"background", true}});
  EXPECT_EQ(begun["status"], "in_progress");
  const std::string path = "/v1/responses/" + begun["id"].get<std::string>();
  ASSERT_TRUE(eventually([&] { return server.get(path)["status"] != "in_progress"; }));
  const Json ended = server.get(path);
  EXPECT_EQ(ended["status"], "completed");
  EXPECT_EQ(ended["output"][0]["content"][0]["text"], "42");
  EXPECT_EQ(server.post(path + "/cancel", Json::object()), ended);  // too late, without an error
}

TEST(Responses, CanBeCancelledInTheBackground) {
  TestServer server;
  server.engine.pace_us = 5000;
  server.engine.script = [](const RequestInput&) { return std::vector<TokenId>(3000, TokenId{5}); };
  const Json begun = server.post("/v1/responses", {{"input", "x"}, {"background", true}});
  const std::string path = "/v1/responses/" + begun["id"].get<std::string>();
  EXPECT_EQ(server.post(path + "/cancel", Json::object())["status"], "cancelled");
  EXPECT_EQ(server.get(path)["status"], "cancelled");
  EXPECT_TRUE(eventually([&] { return server.engine.num_running() == 0; }));
  ASSERT_TRUE(eventually([&] { return !server.get(path)["usage"].is_null(); }));
  EXPECT_EQ(server.get(path)["status"], "cancelled");
  // An answer that is deleted is aborted too.
  const Json other = server.post("/v1/responses", {{"input", "x"}, {"background", true}});
  server.ask("DELETE", "/v1/responses/" + other["id"].get<std::string>());
  EXPECT_TRUE(eventually([&] { return server.engine.num_running() == 0; }));
  // An answer that is not in the background cannot be cancelled; its client closes the connection.
  say(server, "42");
  const Json plain = server.post("/v1/responses", {{"input", "x"}});
  server.post("/v1/responses/" + plain["id"].get<std::string>() + "/cancel", Json::object(), 400);
}

TEST(Responses, WhatIsWrongIsNamed) {
  TestServer server;
  const auto complaint = [&](const char* text) {
    return server.post("/v1/responses", json(text), 400)["error"].value("param", Json());
  };
  EXPECT_EQ(complaint("{}"), "input");
  EXPECT_EQ(complaint(R"({"input":5})"), "input");
  EXPECT_EQ(complaint(R"({"input":"x","max_output_tokens":0})"), "max_output_tokens");
  EXPECT_EQ(complaint(R"({"input":"x","max_output_tokens":5000})"), "max_output_tokens");
  EXPECT_EQ(complaint(R"({"input":"x","max_tokens":5})"), "max_tokens");
  EXPECT_EQ(complaint(R"({"input":"x","temperature":-1})"), "temperature");
  EXPECT_EQ(complaint(R"({"input":"x","truncation":"auto"})"), "truncation");
  EXPECT_EQ(complaint(R"({"input":"x","tools":[{"type":"web_search"}]})"), "tools[0].type");
  EXPECT_EQ(complaint(R"({"input":"x","include":["message.output_text.logprobs"]})"), "include");
  EXPECT_EQ(complaint(R"({"input":"x","background":true,"stream":true})"), "background");
  EXPECT_EQ(complaint(R"({"input":"x","background":true,"store":false})"), "background");
  EXPECT_EQ(complaint(R"({"input":"x","conversation":"c"})"), "conversation");
  EXPECT_EQ(complaint(R"({"input":[{"type":"computer_call"}]})"), "input[0].type");
  EXPECT_EQ(server.post("/v1/responses", json(R"({"input":"x","previous_response_id":"resp_1"})"),
                        404)["error"]["param"],
            "previous_response_id");
  server.get("/v1/responses/resp_1", 404);
  EXPECT_EQ(server.ask("PUT", "/v1/responses/resp_1").status, 405);
}

TEST(Responses, InputIsCounted) {
  TestServer server;
  EXPECT_EQ(server.post("/v1/responses/input_tokens", {{"input", "Hi"}}),
            json(R"({"object":"response.input_tokens","input_tokens":9})"));
  EXPECT_EQ(server.engine.num_seen(), 0u);
}

// Reasoning, text and calls, as an answer's parser reports them.
TEST(Responses, ItemsOfAllKinds) {
  ScriptedAnswer told("resp_1");
  const auto fields = std::make_shared<ResponsesRequest>();
  fields->id = "resp_1";
  told.answer.prepared.request.api_fields = fields;
  using Kind = ScriptedAnswer::Kind;
  told.add(Kind::reasoning, "hm");
  told.add(Kind::call, "", "f");
  told.add(Kind::arguments, "{\"a\":1}");
  told.add(Kind::call_end, "");
  told.add(Kind::call, "", "g");
  told.add(Kind::arguments, "{");
  told.add(Kind::call_broken, "");
  told.add(Kind::text, "g{");
  told.end();
  const Json output = told.whole(responses_format())["output"];
  EXPECT_EQ(output, json(R"([
    {"id":"rs_1_0","type":"reasoning","status":"completed","summary":[],
     "content":[{"type":"reasoning_text","text":"hm"}]},
    {"id":"fc_1_1","type":"function_call","status":"completed","arguments":"{\"a\":1}",
     "call_id":"call_f","name":"f"},
    {"id":"fc_1_2","type":"function_call","status":"incomplete","arguments":"{",
     "call_id":"call_g","name":"g"},
    {"id":"msg_1_3","type":"message","status":"completed","role":"assistant",
     "content":[{"type":"output_text","text":"g{","annotations":[],"logprobs":[]}]}])"));
  std::vector<std::string> types;
  for (const Json& e : told.streamed(responses_format())) {
    if (e["type"] == "response.output_item.done") {
      EXPECT_EQ(e["item"], output[e["output_index"].get<size_t>()]);
    }
    types.push_back(e["type"].get<std::string>().substr(9));
  }
  EXPECT_THAT(types, testing::IsSupersetOf({"reasoning_text.delta", "reasoning_text.done",
                                            "function_call_arguments.delta",
                                            "function_call_arguments.done", "output_text.done"}));
  EXPECT_EQ(types.back(), "completed");
}

}  // namespace
}  // namespace hocket
