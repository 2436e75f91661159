// Keys, limits and origins on a whole server: the keys that its routes need, the requests that a
// client may end, and the requests that a drain still answers.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "server/tests/test_server.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class AccessTest : public testing::Test {
 protected:
  AccessTest()
      : file_((std::filesystem::path(testing::TempDir()) /
               ("hocket_access_" + std::to_string(getpid())))
                  .string()) {
    std::ofstream(file_) << "ann ann-key\nbob bob-key concurrency=1\n"
                            "cat cat-key tokens_per_minute=100\nroot root-key admin\n";
  }
  ~AccessTest() override { std::filesystem::remove(file_); }

  ServerSettings settings() const {
    ServerSettings s;
    s.http.api_key_file = file_;
    return s;
  }
  static std::string text(std::string_view method, std::string_view path, const Json& body,
                          std::string_view key, std::string_view more = "") {
    const std::string bytes = body.is_null() ? "" : body.dump();
    return fmt::format(
        "{} {} HTTP/1.1\r\nHost: x\r\nx-api-key: {}\r\n{}Content-Length: {}\r\n\r\n{}", method,
        path, key, more, bytes.size(), bytes);
  }
  static TestAnswer ask(TestServer& server, std::string_view method, std::string_view path,
                        const Json& body, std::string_view key, std::string_view more = "") {
    TestClient client(server.server->port());
    client.send(text(method, path, body, key, more));
    return client.receive();
  }
  // Starts a stream that lasts until it is aborted, or the engine's pace is raised.
  static TestClient stream(TestServer& server, const char* rid, std::string_view key) {
    server.engine.pace_us = 2000;
    server.engine.script = [](const RequestInput&) { return std::vector(3000, TokenId{300}); };
    TestClient client(server.server->port());
    const Json body = {{"prompt", "hi"}, {"stream", true}, {"rid", rid}, {"max_tokens", 3000}};
    client.send(text("POST", "/v1/completions", body, key));
    EXPECT_TRUE(client.until("\"text\"", 3s).second);
    return client;
  }

  const std::string file_;
};

// Eight drafts are accepted, and the stop string ends with one of them: the others are no part of
// the answer.
TEST_F(AccessTest, TokensBehindAStopStringAreNotCharged) {
  TestServer server(TestServer::Text::bundled, settings());
  server.engine.tokens_a_step = 9;
  say(server, "one two three four five six seven eight nine ten");
  const Json body = {{"prompt", "x"}, {"stop", "two"}, {"max_tokens", 40}};
  const TestAnswer answer = ask(server, "POST", "/v1/completions", body, "cat-key");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json usage = Json::parse(answer.body)["usage"];
  EXPECT_LT(usage["completion_tokens"], 9);
  const TestAnswer next = ask(server, "POST", "/v1/completions", body, "cat-key");
  const std::string field = "x-ratelimit-remaining-tokens: ";
  const size_t at = next.head.find(field);
  ASSERT_NE(at, std::string::npos) << next.head;
  // Time only adds to the tokens that remain.
  EXPECT_GE(std::stoi(next.head.substr(at + field.size())), 100 - usage["total_tokens"].get<int>());
}

TEST_F(AccessTest, RoutesAskForWhatTheyNeed) {
  TestServer server(TestServer::Text::bundled, settings());
  for (const char* path : {"/health", "/health_generate", "/livez", "/readyz"})
    EXPECT_EQ(ask(server, "GET", path, nullptr, "nobody").status, 200) << path;
  for (const char* path :
       {"/v1/models", "/get_server_info", "/metrics", "/get_load", "/overlap", "/speculation"}) {
    EXPECT_EQ(ask(server, "GET", path, nullptr, "nobody").status, 401) << path;
    EXPECT_EQ(ask(server, "GET", path, nullptr, "ann-key").status, 200) << path;
  }
  for (const char* path : {"/flush_cache", "/start_profile", "/stop_profile",
                           "/start_expert_distribution_record", "/stop_expert_distribution_record",
                           "/dump_expert_distribution_record", "/kv_events", "/join_terms"}) {
    EXPECT_EQ(ask(server, "GET", path, nullptr, "nobody").status, 401) << path;
    const TestAnswer refused = ask(server, "GET", path, nullptr, "ann-key");
    EXPECT_EQ(refused.status, 403) << path;
    EXPECT_THAT(refused.body, HasSubstr("\"code\":\"forbidden\""));
    EXPECT_THAT(refused.body, HasSubstr("\"type\":\"permission_error\""));
    const int status = ask(server, "GET", path, nullptr, "root-key").status;
    EXPECT_TRUE(status == 200 || status == 400 || status == 404) << path << " " << status;
  }
  EXPECT_EQ(ask(server, "GET", "/nothing", nullptr, "nobody").status, 401);
  EXPECT_EQ(ask(server, "GET", "/nothing", nullptr, "ann-key").status, 404);
}

TEST_F(AccessTest, NobodyEndsAnothersRequests) {
  TestServer server(TestServer::Text::bundled, settings());
  TestClient running = stream(server, "r1", "ann-key");
  const auto aborted = [&](const Json& body, const char* key) {
    const TestAnswer answer = ask(server, "POST", "/abort_request", body, key);
    return answer.status == 200 ? Json::parse(answer.body)["aborted"].get<int>() : -answer.status;
  };
  EXPECT_EQ(aborted({{"rid", "r1"}}, "bob-key"), 0);
  EXPECT_EQ(aborted({{"abort_all", true}}, "bob-key"), -403);
  EXPECT_EQ(aborted({{"abort_all", true}}, "ann-key"), -403);
  EXPECT_EQ(aborted({{"rid", "r1"}}, "ann-key"), 1);
  EXPECT_TRUE(running.until("[DONE]", 3s).second);
  TestClient again = stream(server, "r2", "ann-key");
  EXPECT_EQ(aborted({{"rid", "r2"}}, "root-key"), 1);
  TestClient last = stream(server, "r3", "ann-key");
  EXPECT_EQ(aborted({{"abort_all", true}}, "root-key"), 1);
}

TEST_F(AccessTest, AnAnswerThatIsReadIsNoLongerUnderWay) {
  TestServer server(TestServer::Text::bundled, settings());
  say(server, "short");
  TestClient client(server.server->port());
  for (int i = 0; i < 30; ++i) {
    Json body = chat_body();
    body["stream"] = i % 2 == 0;
    client.send(text("POST", "/v1/chat/completions", body, "bob-key"));
    const TestAnswer answer = client.receive();
    ASSERT_EQ(answer.status, 200) << i << answer.body;
    EXPECT_THAT(answer.head, HasSubstr("x-ratelimit-remaining-concurrency: 0"));
  }
  TestClient running = stream(server, "r1", "bob-key");
  const TestAnswer refused = ask(server, "POST", "/generate", {{"text", "hi"}}, "bob-key");
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.head, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_THAT(refused.body, HasSubstr("rate_limit_exceeded"));
  // Requests that take no work, or end work, are never refused.
  EXPECT_EQ(ask(server, "GET", "/v1/models", nullptr, "bob-key").status, 200);
  EXPECT_EQ(ask(server, "POST", "/abort_request", {{"rid", "r1"}}, "bob-key").status, 200);
  EXPECT_TRUE(running.until("[DONE]", 3s).second);
  EXPECT_EQ(ask(server, "POST", "/tokenize", {{"text", "hi"}}, "bob-key").status, 200);
  // When a client leaves, its request stops counting.
  stream(server, "r2", "bob-key").close();
  EXPECT_TRUE(eventually(
      [&] { return ask(server, "POST", "/tokenize", {{"text", "hi"}}, "bob-key").status == 200; }));
}

TEST_F(AccessTest, AnAnswerInTheBackgroundIsUnderWayUntilItEnds) {
  TestServer server(TestServer::Text::bundled, settings());
  server.engine.pace_us = 5000;
  server.engine.script = [](const RequestInput&) { return std::vector<TokenId>(3000, TokenId{5}); };
  const Json body = {{"input", "x"}, {"background", true}};
  const TestAnswer begun = ask(server, "POST", "/v1/responses", body, "bob-key");
  ASSERT_EQ(begun.status, 200) << begun.body;
  EXPECT_EQ(ask(server, "POST", "/v1/responses", body, "bob-key").status, 429);
  const std::string path = "/v1/responses/" + Json::parse(begun.body)["id"].get<std::string>();
  EXPECT_EQ(ask(server, "GET", path, nullptr, "bob-key").status, 200);
  EXPECT_EQ(ask(server, "DELETE", path, nullptr, "bob-key").status, 200);
  EXPECT_TRUE(eventually(
      [&] { return ask(server, "POST", "/v1/responses", body, "bob-key").status == 200; }));
}

TEST_F(AccessTest, PromptsAndAnswersTakeTokens) {
  TestServer server(TestServer::Text::bundled, settings());
  server.engine.script = [](const RequestInput&) { return std::vector(200, TokenId{300}); };
  const Json body = {{"input_ids", {1, 2, 3}}, {"sampling_params", {{"max_new_tokens", 150}}}};
  const TestAnswer first = ask(server, "POST", "/generate", body, "cat-key");
  EXPECT_EQ(first.status, 200);
  EXPECT_THAT(first.head, HasSubstr("x-ratelimit-remaining-tokens: 100"));
  const TestAnswer refused = ask(server, "POST", "/generate", body, "cat-key");
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("cat may use 100 tokens a minute"));
  // The bucket holds -53 and needs 1, at 100 a minute; a second may have passed.
  EXPECT_THAT(refused.head,
              testing::AnyOf(HasSubstr("Retry-After: 33\r\n"), HasSubstr("Retry-After: 32\r\n")));
}

TEST_F(AccessTest, PrefixesAreSharedBetweenClientsOnlyWhenAskedFor) {
  for (const bool share : {false, true}) {
    ServerSettings s = settings();
    s.http.share_prefixes = share;
    TestServer server(TestServer::Text::bundled, s);
    const auto space = [&](const char* key) {
      EXPECT_EQ(ask(server, "POST", "/generate", {{"text", "hi"}}, key).status, 200);
      return server.engine.last_seen().cache_namespace;
    };
    EXPECT_EQ(space("ann-key"), space("ann-key"));
    EXPECT_EQ(space("ann-key") == space("root-key"), share);
    EXPECT_EQ(space("ann-key") == CacheNamespace(), share);
    // The same holds for saved sessions, of which each owner may have a number.
    const auto owner = [&](const char* key) {
      EXPECT_EQ(ask(server, "POST", "/sessions/a/save", Json::object(), key).status, 200);
      return server.engine.session_requests.back().owner;
    };
    EXPECT_EQ(owner("ann-key"), owner("ann-key"));
    EXPECT_EQ(owner("ann-key") == owner("root-key"), share);
    EXPECT_EQ(owner("ann-key") == SessionKey(), share);
  }
  // Clients that share one key are one principal.
  ServerSettings shared;
  shared.http.api_key = "k";
  TestServer server(TestServer::Text::bundled, shared);
  EXPECT_EQ(ask(server, "POST", "/generate", {{"text", "hi"}}, "k").status, 200);
  EXPECT_EQ(server.engine.last_seen().cache_namespace, CacheNamespace());
}

TEST_F(AccessTest, PagesOfOthersMayNotAsk) {
  TestServer server;
  const char* evil = "Origin: https://evil.example\r\n";
  EXPECT_EQ(ask(server, "POST", "/abort_request", {{"abort_all", true}}, "", evil).status, 403);
  EXPECT_EQ(ask(server, "GET", "/flush_cache", nullptr, "", evil).status, 403);
  EXPECT_EQ(ask(server, "GET", "/flush_cache", nullptr, "", "Origin: http://x\r\n").status, 200);
  EXPECT_EQ(ask(server, "GET", "/livez", nullptr, "", evil).status, 200);
}

TEST_F(AccessTest, ATargetMayNameNoOtherHostThanHost) {
  TestServer server;
  EXPECT_EQ(ask(server, "GET", "http://x/flush_cache", nullptr, "").status, 200);
  const TestAnswer refused = ask(server, "GET", "http://evil.example/flush_cache", nullptr, "");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, HasSubstr("the target is of 'evil.example', and Host is 'x'"));
}

TEST_F(AccessTest, ADrainingServerSaysSo) {
  TestServer server;
  TestClient running = stream(server, "r1", "");
  auto drained = std::async(std::launch::async, [&] { return server.server->drain(20s); });
  EXPECT_TRUE(eventually([&] { return ask(server, "GET", "/readyz", nullptr, "").status == 503; }));
  EXPECT_EQ(ask(server, "GET", "/livez", nullptr, "").status, 200);
  const TestAnswer refused = ask(server, "POST", "/generate", {{"text", "hi"}}, "");
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("shutting_down"));
  EXPECT_THAT(refused.head, HasSubstr("Connection: close"));
  EXPECT_THAT(refused.head, HasSubstr("Retry-After"));
  server.engine.pace_us = 20;
  EXPECT_TRUE(running.until("[DONE]", 10s).second);
  EXPECT_TRUE(drained.get());
  EXPECT_FALSE(TestClient(server.server->port()).connected());
}

TEST_F(AccessTest, KeysAreReadAgain) {
  TestServer server(TestServer::Text::bundled, settings());
  std::ofstream(file_) << "dan dan-key\n";
  EXPECT_EQ(ask(server, "GET", "/v1/models", nullptr, "dan-key").status, 401);
  EXPECT_TRUE(server.server->reload());
  EXPECT_EQ(ask(server, "GET", "/v1/models", nullptr, "dan-key").status, 200);
  EXPECT_EQ(ask(server, "GET", "/v1/models", nullptr, "ann-key").status, 401);
  std::ofstream(file_) << "";
  EXPECT_FALSE(server.server->reload());
  EXPECT_EQ(ask(server, "GET", "/v1/models", nullptr, "dan-key").status, 200);
}

}  // namespace
}  // namespace hocket
