// The API over real sockets, with a fake model: wire formats, streams, stops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/tests/test_server.h"

namespace hocket {
namespace {

// Removes members that differ from run to run, after checking that they are there.
Json stable(Json json) {
  if (json.contains("id")) {
    EXPECT_TRUE(json["id"].is_string() && json["id"].get<std::string>().size() > 32);
    json.erase("id");
    EXPECT_GT(json["created"].get<int64_t>(), 1600000000);
    json.erase("created");
  }
  if (json.contains("timings")) {
    for (const char* name :
         {"text_ms", "queue_ms", "prefill_ms", "decode_ms", "ttft_ms", "total_ms"})
      EXPECT_GE(json["timings"].value(name, -1.0), 0.0) << name;
    json.erase("timings");
  }
  return json;
}

TEST(Api, ChatAnswer) {
  TestServer server;
  say(server, "42");
  EXPECT_EQ(stable(server.post("/v1/chat/completions", chat_body())), Json::parse(R"({
    "object":"chat.completion","model":"tiny","system_fingerprint":"hocket-0.1.0-bfloat16",
    "choices":[{"index":0,"message":{"role":"assistant","content":"42","refusal":null},
                "logprobs":null,"finish_reason":"stop","matched_stop":2041}],
    "usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,
             "prompt_tokens_details":{"cached_tokens":5},
             "completion_tokens_details":{"reasoning_tokens":0}}})"));
}

TEST(Api, ChatStream) {
  TestServer server;
  say(server, "42");
  Json body = chat_body();
  body["stream_options"] = {{"include_usage", true}};
  const Events events = server.stream("/v1/chat/completions", body);
  ASSERT_EQ(events.status, 200);
  EXPECT_TRUE(events.done);
  const auto chunk = [](const std::string& choice) {
    return Json::parse(R"({"object":"chat.completion.chunk","model":"tiny",
        "system_fingerprint":"hocket-0.1.0-bfloat16","choices":[)" +
                       choice + R"(],"usage":null})");
  };
  ASSERT_EQ(events.blocks.size(), 5u);
  EXPECT_EQ(stable(events.blocks[0]), chunk(R"({"index":0,"delta":{"role":"assistant","content":""},
      "logprobs":null,"finish_reason":null})"));
  EXPECT_EQ(stable(events.blocks[1]), chunk(R"({"index":0,"delta":{"content":"4"},
      "logprobs":null,"finish_reason":null})"));
  EXPECT_EQ(stable(events.blocks[3]), chunk(R"({"index":0,"delta":{},"logprobs":null,
      "finish_reason":"stop","matched_stop":2041})"));
  const Json last = events.blocks[4];
  EXPECT_TRUE(last.contains("timings"));
  EXPECT_EQ(stable(last), Json::parse(R"({"object":"chat.completion.chunk","model":"tiny",
      "system_fingerprint":"hocket-0.1.0-bfloat16","choices":[],
      "usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,
               "prompt_tokens_details":{"cached_tokens":5},
             "completion_tokens_details":{"reasoning_tokens":0}}})"));
  for (const Json& block : events.blocks) EXPECT_EQ(block["id"], events.blocks[0]["id"]);
}

TEST(Api, StreamsWithoutUsageCarryTimingsAtTheEnd) {
  TestServer server;
  say(server, "42");
  const Events events = server.stream("/v1/chat/completions", chat_body());
  EXPECT_FALSE(events.blocks.front().contains("usage"));
  EXPECT_TRUE(events.blocks.back().contains("timings"));
  Json body = chat_body();
  body["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  const Events usage = server.stream("/v1/chat/completions", body);
  EXPECT_EQ(usage.blocks[1]["usage"]["completion_tokens"], 1);
  EXPECT_EQ(usage.blocks[2]["usage"]["completion_tokens"], 2);
}

TEST(Api, CompletionAnswerAndStream) {
  TestServer server;
  say(server, kSentence);
  const Json body = {{"prompt", "Say it"}, {"max_tokens", 500}};
  const Json answer = server.post("/v1/completions", body);
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(answer["choices"][0]["text"], kSentence);
  const Events events = server.stream("/v1/completions", body);
  EXPECT_EQ(joined(events, 0, "text"), kSentence);
  EXPECT_EQ(events.blocks.back()["choices"][0]["finish_reason"], "stop");
  // Blocks hold whole characters only.
  for (const Json& block : events.blocks)
    EXPECT_EQ(block["choices"][0]["text"].get<std::string>().find("\xEF\xBF\xBD"),
              std::string::npos);
}

TEST(Api, LengthEndsTheAnswer) {
  TestServer server;
  say(server, kSentence);
  const Json answer = server.post("/v1/completions", {{"prompt", "x"}, {"max_tokens", 2}});
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 2);
  EXPECT_TRUE(answer["choices"][0]["matched_stop"].is_null());
}

TEST(Api, StopStringsAcrossTokenBorders) {
  TestServer server;
  say(server, kSentence);
  server.engine.pace_us = 200;
  for (const bool stream : {false, true}) {
    Json body = {{"prompt", "x"}, {"stop", Json::array({"zzz", "ris. It"})}};
    std::string text;
    Json end;
    if (stream) {
      const Events events = server.stream("/v1/completions", body);
      text = joined(events, 0, "text");
      end = events.blocks.back()["choices"][0];
    } else {
      end = server.post("/v1/completions", body)["choices"][0];
      text = end["text"];
    }
    EXPECT_EQ(text, "The capital of France is Pa");
    EXPECT_EQ(end["finish_reason"], "stop");
    EXPECT_EQ(end["matched_stop"], "ris. It");
  }
  EXPECT_TRUE(eventually([&] { return server.engine.num_running() == 0; }));
  EXPECT_EQ(server.engine.num_aborted, 2);  // the stop string ended the generation too
  const Json kept =
      server.post("/v1/completions",
                  {{"prompt", "x"}, {"stop", "ris. It"}, {"include_stop_str_in_output", true}});
  EXPECT_EQ(kept["choices"][0]["text"], "The capital of France is Paris. It");
}

TEST(Api, HeldBackTextComesOutAtTheEnd) {
  TestServer server;
  say(server, "one two");
  const Json body = {{"prompt", "x"}, {"stop", "two three"}};
  EXPECT_EQ(server.post("/v1/completions", body)["choices"][0]["text"], "one two");
  EXPECT_EQ(joined(server.stream("/v1/completions", body), 0, "text"), "one two");
}

TEST(Api, StopTokensAreNotShown) {
  TestServer server;
  const auto ids = ids_of("a b");
  server.engine.script = [ids](const RequestInput&) { return ids; };
  const Json body = {{"prompt", "x"}, {"stop_token_ids", Json::array({value(ids.back())})}};
  const Json choice = server.post("/v1/completions", body)["choices"][0];
  EXPECT_EQ(choice["matched_stop"], value(ids.back()));
  const auto shown =
      bundled_text().tokenizer.decode(std::span(ids).first(ids.size() - 1), SpecialTokens::skip);
  EXPECT_EQ(choice["text"], *shown);
}

TEST(Api, SeveralChoicesAndPrompts) {
  TestServer server;
  server.engine.script = [](const RequestInput& r) {
    return ids_of(fmt::format("seed {}", r.sampling.seed % 1000));
  };
  Json body = {{"prompt", Json::array({"one", "two"})}, {"n", 3}, {"seed", 7}};
  const Json answer = server.post("/v1/completions", body);
  ASSERT_EQ(answer["choices"].size(), 6u);
  std::vector<std::string> texts;
  for (const Json& c : answer["choices"]) texts.push_back(c["text"]);
  EXPECT_EQ(texts[0], "seed 7");
  EXPECT_NE(texts[1], texts[0]);
  EXPECT_NE(texts[2], texts[1]);
  EXPECT_EQ(std::vector(texts.begin(), texts.begin() + 3),
            std::vector(texts.begin() + 3, texts.end()));
  // Each prompt once, and all tokens of such short ones.
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"],
            ids_of("one").size() + ids_of("two").size());
  const Events events = server.stream("/v1/completions", body);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(joined(events, i, "text"), texts[static_cast<size_t>(i)]);
}

TEST(Api, ChatLogprobsCoverTheTextByteByByte) {
  TestServer server;
  say(server, kSentence);
  Json body = chat_body();
  body["logprobs"] = true;
  body["top_logprobs"] = 2;
  const auto bytes_of = [](const Json& content) {
    std::string bytes;
    for (const Json& entry : content) {
      EXPECT_DOUBLE_EQ(entry["logprob"].get<double>(), -0.25);
      EXPECT_EQ(entry["top_logprobs"].size(), 2u);
      EXPECT_EQ(entry["top_logprobs"][0]["token"], entry["token"]);
      for (const Json& b : entry["bytes"]) bytes += static_cast<char>(b.get<int>());
    }
    return bytes;
  };
  const Json choice = server.post("/v1/chat/completions", body)["choices"][0];
  EXPECT_EQ(bytes_of(choice["logprobs"]["content"]), kSentence);
  // In a stream each chunk's entries match its text, even if stop strings hold text back.
  body["stop"] = "Paris is";
  std::string streamed;
  for (const Json& block : server.stream("/v1/chat/completions", body).blocks) {
    const Json& c = block["choices"][0];
    if (c["logprobs"].is_null()) continue;
    const std::string bytes = bytes_of(c["logprobs"]["content"]);
    EXPECT_EQ(bytes, c["delta"].value("content", ""));
    streamed += bytes;
  }
  EXPECT_EQ(streamed, kSentence);
}

TEST(Api, LogprobsEndWithTheCutText) {
  TestServer server;
  say(server, "red green blue");
  Json body = chat_body();
  body["logprobs"] = true;
  body["stop"] = "een";
  const Json choice = server.post("/v1/chat/completions", body)["choices"][0];
  EXPECT_EQ(choice["message"]["content"], "red gr");
  std::string bytes;
  for (const Json& entry : choice["logprobs"]["content"])
    for (const Json& b : entry["bytes"]) bytes += static_cast<char>(b.get<int>());
  EXPECT_TRUE(bytes.starts_with("red gr")) << bytes;
  EXPECT_LT(bytes.size(), std::string("red green b").size());
}

TEST(Api, EchoWithPromptLogprobs) {
  TestServer server;
  say(server, " world");
  const Json body = {{"prompt", "Hello né"}, {"max_tokens", 1}, {"echo", true}, {"logprobs", 2}};
  const Json choice = server.post("/v1/completions", body)["choices"][0];
  const Json& lp = choice["logprobs"];
  EXPECT_TRUE(choice["text"].get<std::string>().starts_with("Hello né"));
  const size_t n = ids_of("Hello né").size();
  EXPECT_EQ(lp["tokens"].size(), n + 1);
  EXPECT_TRUE(lp["token_logprobs"][0].is_null());
  EXPECT_TRUE(lp["top_logprobs"][0].is_null());
  EXPECT_DOUBLE_EQ(lp["token_logprobs"][1].get<double>(), -0.25);
  EXPECT_EQ(lp["top_logprobs"][1].size(), 2u);
  EXPECT_EQ(lp["text_offset"][0], 0);
  EXPECT_EQ(lp["text_offset"][n], 8);  // characters, not bytes
  const Events events = server.stream("/v1/completions", body);
  EXPECT_EQ(choice["text"], joined(events, 0, "text"));
  Json tokens = Json::array(), offsets = Json::array();
  for (const Json& block : events.blocks) {
    const Json& c = block["choices"][0];
    if (c["logprobs"].is_null()) continue;
    for (const Json& t : c["logprobs"]["tokens"]) tokens.push_back(t);
    for (const Json& t : c["logprobs"]["text_offset"]) offsets.push_back(t);
  }
  EXPECT_EQ(tokens, lp["tokens"]);
  EXPECT_EQ(offsets, lp["text_offset"]);
  // Evaluation programs ask for the log-probabilities of the prompt only.
  Json none = body;
  none["max_tokens"] = 0;
  const Json scored = server.post("/v1/completions", none);
  EXPECT_EQ(scored["choices"][0]["text"], "Hello né");
  EXPECT_EQ(scored["choices"][0]["logprobs"]["tokens"].size(), n);
  EXPECT_EQ(scored["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(scored["usage"]["completion_tokens"], 0);
}

TEST(Api, TokenIdsInAndOut) {
  TestServer server;
  const Json body = {
      {"prompt", Json::array({5, 6, 7})}, {"return_token_ids", true}, {"max_tokens", 3}};
  const Json choice = server.post("/v1/completions", body)["choices"][0];
  EXPECT_EQ(choice["token_ids"], Json::parse("[5,6,7]"));
  EXPECT_EQ(choice["prompt_token_ids"], Json::parse("[5,6,7]"));
  Json ids = Json::array();
  for (const Json& block : server.stream("/v1/completions", body).blocks)
    for (const Json& id : block["choices"][0].value("token_ids", Json::array())) ids.push_back(id);
  EXPECT_EQ(ids, Json::parse("[5,6,7]"));
}

TEST(Api, Generate) {
  TestServer server;
  say(server, "Paris.");
  Json body = {{"text", "The capital"},
               {"rid", "mine"},
               {"sampling_params", {{"max_new_tokens", 20}, {"sampling_seed", 3}}}};
  const Json answer = server.post("/generate", body);
  EXPECT_EQ(answer["text"], "Paris.");
  Json ids = Json::array();
  for (const TokenId id : ids_of("Paris.")) ids.push_back(value(id));
  ids.push_back(2041);
  EXPECT_EQ(answer["output_ids"], ids);
  const Json& meta = answer["meta_info"];
  EXPECT_EQ(meta["id"], "mine");
  EXPECT_EQ(meta["finish_reason"], Json::parse(R"({"type":"stop","matched":2041})"));
  EXPECT_EQ(meta["prompt_tokens"], ids_of("The capital").size());
  EXPECT_EQ(meta["completion_tokens"], ids.size());
  EXPECT_EQ(meta["cached_tokens"], std::min<size_t>(5, ids_of("The capital").size()));
  EXPECT_GT(meta["e2e_latency"].get<double>(), 0);
  EXPECT_EQ(server.engine.last_seen().sampling.seed, 3u);

  const Events events = server.stream("/generate", body);
  EXPECT_TRUE(events.done);
  std::string before;
  for (const Json& block : events.blocks) {
    EXPECT_TRUE(block["text"].get<std::string>().starts_with(before)) << "cumulative";
    before = block["text"];
    EXPECT_EQ(block["meta_info"]["finish_reason"].is_null(), &block != &events.blocks.back());
  }
  EXPECT_EQ(before, "Paris.");
  EXPECT_EQ(events.blocks.back()["output_ids"], ids);
}

TEST(Api, GenerateLogprobsAndBatches) {
  TestServer server;
  Json body = {{"input_ids", Json::parse("[5,6,7]")},
               {"return_logprob", true},
               {"logprob_start_len", 0},
               {"top_logprobs_num", 2},
               {"return_text_in_logprobs", true},
               {"sampling_params", {{"max_new_tokens", 2}}}};
  const Json meta = server.post("/generate", body)["meta_info"];
  const Tokenizer& tokenizer = bundled_text().tokenizer;
  EXPECT_EQ(meta["input_token_logprobs"].size(), 3u);
  EXPECT_TRUE(meta["input_token_logprobs"][0][0].is_null());
  EXPECT_EQ(meta["input_token_logprobs"][1],
            Json::array({-0.25, 6, tokenizer.token_bytes(TokenId{6})}));
  EXPECT_EQ(meta["output_token_logprobs"].size(), 2u);
  EXPECT_EQ(meta["output_top_logprobs"][0].size(), 2u);
  EXPECT_EQ(meta["finish_reason"], Json::parse(R"({"type":"length","length":2})"));

  Json batch = {{"input_ids", Json::parse("[[5,6],[7,8,9]]")},
                {"sampling_params", Json::parse(R"([{"max_new_tokens":1},{"max_new_tokens":2}])")}};
  const Json answers = server.post("/generate", batch);
  ASSERT_TRUE(answers.is_array());
  EXPECT_EQ(answers[0]["output_ids"], Json::parse("[5]"));
  EXPECT_EQ(answers[1]["output_ids"], Json::parse("[7,8]"));
  EXPECT_NE(answers[0]["meta_info"]["id"], answers[1]["meta_info"]["id"]);
  std::vector<int> seen(2);
  for (const Json& block : server.stream("/generate", batch).blocks)
    ++seen[block["index"].get<size_t>()];
  EXPECT_THAT(seen, testing::ElementsAre(1, 2));
}

TEST(Api, FoldersWithoutTokenizerAreServedByIds) {
  TestServer server(TestServer::Text::none);
  const Json answer = server.post("/generate", {{"input_ids", Json::parse("[5,6]")},
                                                {"sampling_params", {{"max_new_tokens", 2}}}});
  EXPECT_EQ(answer["text"], "");
  EXPECT_EQ(answer["output_ids"], Json::parse("[5,6]"));
  EXPECT_EQ(server.stream("/generate", {{"input_ids", Json::parse("[5,6]")}}).blocks.size(), 3u);
  for (const auto& [path, body] : std::vector<std::pair<const char*, Json>>{
           {"/v1/chat/completions", chat_body()},
           {"/v1/completions", {{"prompt", Json::parse("[5]")}}},
           {"/generate", {{"text", "x"}}},
           {"/generate", {{"input_ids", Json::parse("[5]")}, {"sampling_params", {{"stop", "x"}}}}},
           {"/tokenize", {{"prompt", "x"}}},
           {"/detokenize", {{"tokens", Json::parse("[5]")}}}})
    EXPECT_EQ(server.post(path, body, 400)["error"]["code"], "no_tokenizer") << path;
}

TEST(Api, TokenizeRoundTrip) {
  TestServer server;
  const Json tokens = server.post("/tokenize", {{"prompt", kSentence}});
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(tokens["max_model_len"], 4096);
  EXPECT_EQ(server.post("/tokenize", {{"text", kSentence}})["tokens"], tokens["tokens"]);
  EXPECT_EQ(server.post("/detokenize", {{"tokens", tokens["tokens"]}}),
            (Json{{"text", kSentence}, {"prompt", kSentence}}));
  EXPECT_EQ(server.post("/tokenize", chat_body())["count"], 9);
  server.post("/tokenize", Json::object(), 400);
  server.post("/tokenize", {{"prompt", "x"}, {"text", "y"}}, 400);
  server.post("/detokenize", {{"tokens", "x"}}, 400);
}

TEST(Api, Infos) {
  ServerSettings settings;
  settings.http.api_key = "";
  TestServer server(TestServer::Text::bundled, settings);
  EXPECT_EQ(server.get("/v1/models")["data"][0]["id"], "tiny");
  EXPECT_EQ(server.get("/v1/models/tiny")["max_model_len"], 4096);
  EXPECT_EQ(server.get("/v1/models/other", 404)["error"]["hint"], "'tiny' is served");
  const Json info = server.get("/get_model_info");
  EXPECT_EQ(info["model_path"], "models/tiny");
  EXPECT_EQ(info["is_generation"], true);
  EXPECT_EQ(info["preferred_sampling_params"]["temperature"], 0.3);
  const Json all = server.get("/get_server_info");
  EXPECT_EQ(all["settings"]["page_size"], 32);
  EXPECT_EQ(all["changes"][0]["flag"], "--page-size");
  EXPECT_EQ(all["notes"][0], "--mla-form auto: the prefix cache keeps no answers");
  EXPECT_EQ(all["settings"]["prefill_policy"], "latency");  // chosen by `auto`
  EXPECT_EQ(all["settings"]["max_overtaken"], 512);
  EXPECT_EQ(all["settings"]["decode_log_interval"], 40);
  EXPECT_EQ(all["overlap_schedule"], false);
  Json load = server.get("/get_load");
  EXPECT_GT(load[0]["ts_tic"].get<double>(), 0);
  load[0].erase("ts_tic");
  EXPECT_EQ(load, Json::parse(R"([{"dp_rank":0,"num_reqs":0,"num_waiting_reqs":0,"num_tokens":7,
                                   "num_pending_tokens":0}])"));
  for (const char* path : {"/health", "/health_generate", "/livez", "/readyz"}) server.get(path);
  EXPECT_EQ(server.ask("GET", "/metrics").status, 200);
  EXPECT_EQ(server.post("/flush_cache", Json::object()), Json::parse(R"({"flushed":true})"));
}

}  // namespace
}  // namespace hocket
