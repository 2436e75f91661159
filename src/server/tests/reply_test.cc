// The work, memory and waiting that a request causes fall on its own client. Over real sockets,
// with a fake model.
#include "server/reply/reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <new>

#include "server/tests/test_server.h"

namespace hocket {
namespace {

using std::chrono::seconds;

// Asks for prompt log-probabilities of `n` choices, with 20 alternatives each.
Json scored_body(int num_prompt_tokens, int n) {
  return {{"input_ids", Json(std::vector<int>(static_cast<size_t>(num_prompt_tokens), 300))},
          {"return_logprob", true},
          {"logprob_start_len", 0},
          {"top_logprobs_num", 20},
          {"sampling_params", {{"max_new_tokens", 1}, {"n", n}}}};
}

double metric(TestServer& server, std::string_view name) {
  const std::string text = server.ask("GET", "/metrics").body;
  const size_t at = text.find(fmt::format("\nhocket:{}{{", name));
  return at == std::string::npos ? -1 : std::atof(text.c_str() + text.find("} ", at) + 2);
}

TEST(Reply, PromptLogprobsComeOnceInAStream) {
  TestServer server;
  Json body = scored_body(5, 1);
  body["sampling_params"]["max_new_tokens"] = 4;
  const Json whole = server.post("/generate", body);
  const Events events = server.stream("/generate", body);
  ASSERT_EQ(events.blocks.size(), 4u);
  for (const char* name : {"input_token_logprobs", "input_top_logprobs"}) {
    EXPECT_EQ(events.blocks[0]["meta_info"][name], whole["meta_info"][name]);
    for (size_t i = 1; i < 4; ++i)
      EXPECT_EQ(events.blocks[i]["meta_info"][name], Json::array()) << name << " of block " << i;
  }
  const Json& last = events.blocks.back();
  EXPECT_EQ(last["output_ids"], whole["output_ids"]);
  EXPECT_EQ(last["text"], whole["text"]);
  for (const char* name : {"output_token_logprobs", "output_top_logprobs"})
    EXPECT_EQ(last["meta_info"][name], whole["meta_info"][name]);
}

// Each block repeats all text, so long blocks come less often.
TEST(Reply, AStreamThatRepeatsItselfCostsSoMuchAToken) {
  constexpr size_t kTokens = 600, kBytesPerToken = 33 << 10;
  TestServer server;
  server.engine.script = [](const RequestInput&) { return std::vector(kTokens, TokenId{300}); };
  Json body = scored_body(1, 1);
  body["sampling_params"]["max_new_tokens"] = kTokens;
  const Json whole = server.post("/generate", body);
  body["stream"] = true;
  const TestAnswer stream = server.ask("POST", "/generate", body.dump());
  EXPECT_LE(stream.body.size(), kTokens * kBytesPerToken);
  std::vector<std::string> events = SseReader().feed(stream.body);
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events.back(), kSseDone);
  const Json last = Json::parse(events[events.size() - 2]);
  EXPECT_EQ(last["text"], whole["text"]);
  EXPECT_EQ(last["output_ids"], whole["output_ids"]);
  EXPECT_EQ(last["meta_info"]["output_top_logprobs"], whole["meta_info"]["output_top_logprobs"]);
}

// Its blocks would be more than a stream may hold, so the client gets fewer of them.
TEST(Reply, AClientThatPausesMissesNothingOfAStreamThatRepeatsItself) {
  constexpr size_t kTokens = 600;
  TestServer server;
  server.engine.script = [](const RequestInput&) { return std::vector(kTokens, TokenId{300}); };
  Json body = scored_body(1, 1);
  body["sampling_params"]["max_new_tokens"] = kTokens;
  const Json whole = server.post("/generate", body);
  body["stream"] = true;
  TestClient client(server.server->port(), 32 << 10);
  ASSERT_TRUE(client.send(TestServer::request_text("POST", "/generate", body.dump())));
  ASSERT_TRUE(eventually([&] { return server.engine.num_seen() == 2; }, seconds(10)));
  ASSERT_TRUE(eventually([&] { return server.engine.num_running() == 0; }, seconds(10)));
  const TestAnswer stream = client.receive(seconds(10));
  std::vector<std::string> events = SseReader().feed(stream.body);
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events.back(), kSseDone);
  EXPECT_EQ(Json::parse(events[events.size() - 2])["output_ids"], whole["output_ids"]);
  EXPECT_EQ(metric(server, "http_slow_clients_total"), 0);
}

// A long answer is written as JSON while a stream begins after it.
TEST(Reply, NobodyWaitsForAnothersLongAnswer) {
  TestServer server;
  server.engine.script = [](const RequestInput&) { return std::vector(20, TokenId{300}); };
  TestClient long_answer(server.server->port());
  long_answer.send(TestServer::request_text("POST", "/generate", scored_body(4000, 8).dump()));
  ASSERT_TRUE(eventually([&] { return server.engine.num_seen() == 8; }, seconds(10)));
  Json body = chat_body();
  body["max_tokens"] = 20;
  EXPECT_TRUE(server.stream("/v1/chat/completions", body).done);
  EXPECT_GT(server.get("/live")["num_requests"], 0) << "the long answer was told first";
  EXPECT_EQ(long_answer.receive(seconds(30)).status, 200);
}

TEST(Reply, TheLongAnswerOfOneFailsAlone) {
  ServerSettings settings;
  settings.http.request_memory_mib = 1;
  TestServer server(TestServer::Text::bundled, settings);
  // Refused before the first token: the prompts' positions would take too much.
  const Json at_once = server.post("/generate", scored_body(4000, 4), 413);
  EXPECT_EQ(at_once["error"]["code"], "payload_too_large");
  EXPECT_THAT(at_once["error"]["message"].get<std::string>(), testing::HasSubstr("1048576"));
  EXPECT_TRUE(server.engine.seen.empty());
  // Refused while the answer grows.
  server.engine.script = [](const RequestInput&) { return std::vector(4000, TokenId{300}); };
  Json body = {{"messages", chat_body()["messages"]}, {"logprobs", true}, {"top_logprobs", 20}};
  const Json later = server.post("/v1/chat/completions", body, 413);
  EXPECT_EQ(later["error"]["code"], "payload_too_large");
  Json repeating = scored_body(1, 1);
  repeating["stream"] = true;
  repeating["sampling_params"]["max_new_tokens"] = 4000;
  const TestAnswer stream = server.ask("POST", "/generate", repeating.dump());
  EXPECT_EQ(stream.status, 200);
  EXPECT_THAT(stream.body.substr(stream.body.rfind("data: {")),
              testing::AllOf(testing::HasSubstr(R"("code":"payload_too_large")"),
                             testing::EndsWith("data: [DONE]\n\n")));
  // A stream whose blocks hold only new text needs no more memory than that text.
  body["max_tokens"] = 300;
  EXPECT_TRUE(server.stream("/v1/chat/completions", body).done);
  say(server, "ok");
  server.post("/v1/chat/completions", chat_body());
  EXPECT_TRUE(eventually([&] { return metric(server, "request_memory_bytes") == 0; }));
}

// The text thread that begins a request holds its job's lock.
TEST(Reply, LookingWaitsForNoAnswer) {
  TestServer server;
  say(server, "ok");
  std::latch begun(1), looked(1);
  server.engine.entering = [&] {
    begun.count_down();
    looked.wait();
  };
  TestClient client(server.server->port());
  client.send(TestServer::request_text("POST", "/v1/chat/completions", chat_body().dump()));
  begun.wait();
  EXPECT_EQ(server.get("/live")["requests"].size(), 1u);
  EXPECT_EQ(server.get("/livez")["status"], "ok");
  looked.count_down();
  EXPECT_EQ(client.receive().status, 200);
}

TEST(Reply, AnExceptionEndsItsAnswerAlone) {
  TestServer server;
  say(server, "one two");
  const auto no_memory = [] { throw std::bad_alloc(); };
  server.engine.entering = no_memory;
  EXPECT_EQ(server.post("/v1/chat/completions", chat_body(), 503)["error"]["code"],
            "out_of_memory");
  server.engine.entering = nullptr;
  // Fails on the thread `reply`, when a stop string is reported to the engine.
  server.engine.finishing = no_memory;
  Json body = chat_body();
  body["stop"] = "two";
  server.engine.script = [ids = ids_of("one two three four")](const RequestInput&) { return ids; };
  EXPECT_EQ(server.post("/v1/chat/completions", body, 503)["error"]["code"], "out_of_memory");
  const Events events = server.stream("/v1/chat/completions", body);
  EXPECT_EQ(events.blocks.back()["error"]["code"], "out_of_memory");
  EXPECT_TRUE(events.done);
  server.engine.finishing = nullptr;
  EXPECT_TRUE(server.stream("/v1/chat/completions", body).done);
  EXPECT_TRUE(eventually([&] { return server.get("/live")["num_requests"] == 0; }));
}

}  // namespace
}  // namespace hocket
