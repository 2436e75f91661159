// Requests that fail, servers that shut down, and requests side by side: errors, aborts, drains.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <latch>
#include <sstream>
#include <thread>

#include "base/source_dir_testing.h"
#include "core/version.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

TEST(Life, UnknownPathsAndMethods) {
  TestServer server;
  EXPECT_EQ(server.get("/v1/chat/completion", 404)["error"]["hint"],
            "did you mean /v1/chat/completions?");
  EXPECT_EQ(server.get("/nothing/like/this", 404)["error"]["type"], "not_found_error");
  const TestAnswer answer = server.ask("GET", "/generate");
  EXPECT_EQ(answer.status, 405);
  EXPECT_NE(answer.head.find("Allow: POST"), std::string::npos) << answer.head;
}

TEST(Life, ErrorsNameTheField) {
  TestServer server;
  Json body = chat_body();
  body["temprature"] = 1;
  const Json e = server.post("/v1/chat/completions", body, 400)["error"];
  EXPECT_EQ(e["param"], "temprature");
  EXPECT_EQ(e["type"], "invalid_request_error");
  EXPECT_EQ(e["code"], "invalid_request");
  EXPECT_EQ(e["hint"], "did you mean 'temperature'?");
  EXPECT_EQ(server.ask("POST", "/v1/completions", "{\"prompt\":\"\xff\"}").status, 400);
  body = {{"prompt", "x"}, {"max_tokens", 4096}};
  EXPECT_EQ(server.post("/v1/completions", body, 400)["error"]["code"], "context_length_exceeded");
}

TEST(Life, RefusalsOfTheGeneratorBecomeStatuses) {
  TestServer server;
  server.engine.refusal = error(ErrorCode::queue_full, "1024 requests wait");
  const TestAnswer answer = server.ask("POST", "/v1/chat/completions", chat_body().dump());
  EXPECT_EQ(answer.status, 429);
  EXPECT_NE(answer.head.find("Retry-After"), std::string::npos);
}

TEST(Life, ErrorsAfterTheFirstByteAreBlocks) {
  TestServer server;
  say(server, "one two three four");
  server.engine.late_error = error(ErrorCode::bad_logits, "the logits are not finite");
  EXPECT_EQ(server.post("/v1/chat/completions", chat_body(), 500)["error"]["code"], "bad_logits");
  const Events events = server.stream("/v1/chat/completions", chat_body());
  EXPECT_EQ(events.status, 200);
  EXPECT_EQ(events.blocks.back()["error"]["code"], "bad_logits");
  server.engine.late_error.reset();
  EXPECT_EQ(server.stream("/v1/chat/completions", chat_body()).done, true);
}

// Two requests that hold both text threads of a server until release().
class HeldTextThreads {
 public:
  explicit HeldTextThreads(TestServer& server) {
    server.engine.entering = [this] {
      ++num_holding_;
      held_.wait();
    };
    for (int i = 0; i < 2; ++i) {
      clients_.emplace_back(server.server->port());
      clients_.back().send(request());
    }
    while (num_holding_ < 2) std::this_thread::yield();
  }
  static std::string request() {
    return TestServer::request_text("POST", "/v1/chat/completions", chat_body().dump());
  }
  void release() {
    held_.count_down();
    for (TestClient& client : clients_) EXPECT_EQ(client.receive().status, 200);
  }

 private:
  std::latch held_{1};
  std::atomic<int> num_holding_ = 0;
  std::vector<TestClient> clients_;
};

// While both text threads are held, aborts, metrics and admins' requests are still answered.
TEST(Life, WhatControlsNeverWaitsForTexts) {
  TestServer server;
  HeldTextThreads held(server);
  EXPECT_EQ(server.post("/abort_request", {{"rid", "x"}})["aborted"], 0);
  server.post("/v1/responses/resp_x/cancel", Json::object(), 404);
  server.post("/flush_cache", Json::object());
  for (const char* path : {"/livez", "/readyz", "/health", "/metrics", "/v1/loads"})
    EXPECT_EQ(server.ask("GET", path).status, 200) << path;
  EXPECT_EQ(server.ask("POST", "/abort_request", std::string(65537, ' ')).status, 413);
  held.release();
}

TEST(Life, WhatWaitsForATextThreadEndsWithItsClient) {
  TestServer server;
  HeldTextThreads held(server);
  TestClient leaving(server.server->port());
  leaving.send(HeldTextThreads::request());
  // The three requests, and the one that reads /metrics.
  EXPECT_TRUE(eventually([&] { return server.metric("http_active_requests{") == 4; }));
  leaving.close();
  EXPECT_TRUE(eventually([&] { return server.metric("status=\"499\"") == 1; }));
  held.release();
  EXPECT_EQ(server.ask("POST", "/v1/chat/completions", chat_body().dump()).status, 200);
  EXPECT_EQ(server.engine.num_seen(), 3u);
}

// Starts a stream that lasts until it is aborted.
TestClient long_stream(TestServer& server, const char* rid = "long") {
  server.engine.pace_us = 2000;
  server.engine.script = [](const RequestInput&) { return std::vector(4000, TokenId{300}); };
  TestClient client(server.server->port());
  Json body = chat_body();
  body["stream"] = true;
  body["rid"] = rid;
  client.send(TestServer::request_text("POST", "/v1/chat/completions", body.dump()));
  EXPECT_TRUE(client.until("\"content\"", std::chrono::seconds(3)).second);
  return client;
}

TEST(Life, AClientThatLeavesIsAborted) {
  TestServer server;
  TestClient streaming = long_stream(server);
  streaming.close();
  EXPECT_TRUE(eventually([&] { return server.engine.num_aborted == 1; }));
  TestClient waiting(server.server->port());
  waiting.send(TestServer::request_text("POST", "/v1/chat/completions", chat_body().dump()));
  EXPECT_TRUE(eventually([&] { return server.engine.num_running() == 1; }));
  waiting.close();
  EXPECT_TRUE(eventually([&] { return server.engine.num_aborted == 2; }));
}

TEST(Life, AbortByRid) {
  TestServer server;
  TestClient client = long_stream(server, "r1");
  EXPECT_EQ(server.post("/abort_request", {{"rid", "other"}})["aborted"], 0);
  EXPECT_EQ(server.post("/flush_cache", Json::object(), 400)["error"]["type"],
            "invalid_request_error");
  EXPECT_EQ(server.post("/abort_request", {{"rid", "r1"}})["aborted"], 1);
  const auto rest = client.until("[DONE]", std::chrono::seconds(3));
  EXPECT_TRUE(rest.second);
  EXPECT_NE(rest.first.find("\"finish_reason\":\"abort\""), std::string::npos);
  TestClient again = long_stream(server, "r2");
  EXPECT_EQ(server.post("/abort_request", {{"abort_all", true}})["aborted"], 1);
  EXPECT_TRUE(again.until("[DONE]", std::chrono::seconds(3)).second);
}

TEST(Life, DrainLetsAStreamFinish) {
  TestServer server;
  TestClient client = long_stream(server);
  server.engine.pace_us = 20;
  EXPECT_TRUE(server.server->drain(std::chrono::seconds(10)));
  EXPECT_TRUE(client.until("[DONE]", std::chrono::seconds(1)).second);
  EXPECT_FALSE(TestClient(server.server->port()).connected());
}

TEST(Life, DrainWithoutPatienceCutsOff) {
  TestServer server;
  TestClient client = long_stream(server);
  EXPECT_FALSE(server.server->drain(Duration{}));
  const auto rest = client.until("[DONE]", std::chrono::seconds(1));
  EXPECT_NE(rest.first.find("\"code\":\"shutting_down\""), std::string::npos) << rest.first;
  EXPECT_EQ(rest.first.find("\"finish_reason\":\"abort\""), std::string::npos) << rest.first;
}

TEST(Life, SixtyFourStreamsAtOnce) {
  TestServer server;
  server.engine.script = [](const RequestInput& r) {
    return ids_of(fmt::format("{} {}", r.sampling.seed, kSentence));
  };
  server.engine.pace_us = 300;
  std::vector<std::thread> clients;
  std::atomic<int> good = 0;
  for (int i = 0; i < 64; ++i)
    clients.emplace_back([&, i] {
      Json body = chat_body();
      body["seed"] = i;
      const Events events = server.stream("/v1/chat/completions", body);
      if (events.done && joined(events, 0, "delta") == fmt::format("{} {}", i, kSentence)) ++good;
    });
  for (std::thread& t : clients) t.join();
  EXPECT_EQ(good, 64);
  EXPECT_EQ(server.engine.num_running(), 0);
}

TEST(Life, VersionIsTheProjects) {
  std::ifstream file(source_dir() / "CMakeLists.txt");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(fmt::format("project(hocket VERSION {} ", kVersion)),
            std::string::npos);
}

}  // namespace
}  // namespace hocket
