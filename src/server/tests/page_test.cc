// The page and the paths that it reads, over real sockets.
#include "server/page/page.h"
#include "server/apis/openai/openai_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock_testing.h"
#include "server/page/live_view.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

TestAnswer ask_with(TestServer& server, std::string_view path, std::string_view headers) {
  TestClient client(server.server->port());
  client.send(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n{}\r\n", path, headers));
  return client.receive();
}

TEST(Page, ItsFilesAreServedWithAPolicy) {
  TestServer server;
  const TestAnswer index = server.ask("GET", "/");
  EXPECT_EQ(index.status, 200);
  EXPECT_THAT(index.head, HasSubstr("\r\nContent-Type: text/html"));
  EXPECT_THAT(index.head, HasSubstr("\r\nContent-Security-Policy: default-src 'none';"));
  EXPECT_THAT(index.head, HasSubstr("\r\nCache-Control: no-cache"));
  EXPECT_THAT(index.body, HasSubstr("<title>hocket</title>"));
  for (const PageFile& file : embedded_page()) {
    const TestAnswer answer = server.ask("GET", fmt::format("/ui/{}", file.path));
    EXPECT_EQ(answer.status, 200) << file.path;
    EXPECT_EQ(answer.body, file.bytes) << file.path;
    const bool may_be_kept = answer.head.find("immutable") != answer.head.npos;
    EXPECT_EQ(may_be_kept, file.path.starts_with("assets/")) << file.path;
    EXPECT_THAT(answer.head, Not(HasSubstr("octet-stream"))) << file.path;
  }
  EXPECT_EQ(server.ask("GET", "/ui/none.js").status, 404);
  EXPECT_EQ(server.ask("GET", "/ui/../index.html").status, 404);
  EXPECT_EQ(server.ask("POST", "/").status, 405);
}

TEST(Page, IsNotSentAgainToWhoHasIt) {
  TestServer server;
  const std::string etag(std::ranges::find(embedded_page(), "index.html", &PageFile::path)->etag);
  const TestAnswer same =
      ask_with(server, "/", fmt::format("If-None-Match: \"other\", {}\r\n", etag));
  EXPECT_EQ(same.status, 304);
  EXPECT_EQ(same.body, "");
  EXPECT_THAT(same.head, HasSubstr("\r\nETag: " + etag));
  EXPECT_THAT(same.head, Not(HasSubstr("Content-Length")));
  EXPECT_EQ(ask_with(server, "/", "If-None-Match: \"other\"\r\n").status, 200);
}

TEST(Page, NeedsNoKeyButItsDataDoes) {
  ServerSettings settings;
  settings.http.api_key = "secret";
  TestServer server(TestServer::Text::bundled, settings);
  EXPECT_EQ(server.ask("GET", "/").status, 200);
  for (const char* path : {"/live", "/steps", "/steps/trace", "/expert_distribution"})
    EXPECT_EQ(server.ask("GET", path).status, 401) << path;
  EXPECT_EQ(ask_with(server, "/live", "x-api-key: secret\r\n").status, 200);
}

TEST(Page, LiveTellsWhereCachedPromptsCameFrom) {
  CacheTierStats stats;
  PageTierStats& redis = stats.tiers[static_cast<size_t>(PageTier::redis)];
  static_cast<PageTierCounters&>(redis) = {
      .read_bytes_total = 4096, .tokens_total = 64, .saved_seconds_total = 1.5};
  redis.exists = redis.away = true;
  LiveView view;
  EXPECT_EQ(live_json(view, TimePoint{})["ranks"][0]["tiers"], Json::array());
  view.stats.tier = stats;
  const Json want = {
      {"name", "redis"},    {"unavailable", true},      {"away", true},
      {"tokens_total", 64}, {"read_bytes_total", 4096}, {"saved_seconds_total", 1.5}};
  EXPECT_EQ(live_json(view, TimePoint{})["ranks"][0]["tiers"], Json::array({want}));
}

TEST(Page, LiveTellsOfRequestsUnderWayAndEnded) {
  TestServer server;
  server.engine.pace_us = 20'000;
  say(server, "42");
  Json live = server.get("/live");
  EXPECT_EQ(live["requests"], Json::array());
  EXPECT_EQ(live["ended"], Json::array());
  EXPECT_EQ(live["ranks"].size(), 1u);
  EXPECT_EQ(live["ready"], true);

  TestClient client(server.server->port());
  Json body = chat_body();
  body["max_tokens"] = 9;
  client.send(TestServer::request_text("POST", "/v1/chat/completions", body.dump()));
  for (int i = 0; i < 500 && live["num_requests"] == 0; ++i) live = server.get("/live");
  ASSERT_EQ(live["requests"].size(), 1u);
  const Json& request = live["requests"][0];
  EXPECT_EQ(request["api"], "chat");
  EXPECT_EQ(request["prompt_tokens"], 9);
  EXPECT_EQ(request["max_tokens"], 9);
  EXPECT_THAT(request["id"].get<std::string>(), HasSubstr("chatcmpl-"));
  EXPECT_EQ(client.receive().status, 200);

  live = server.get("/live");
  EXPECT_EQ(live["num_requests"], 0);
  ASSERT_EQ(live["ended"].size(), 1u);
  const Json& ended = live["ended"][0];
  EXPECT_EQ(ended["number"], 1);
  EXPECT_EQ(ended["finish"], "stop");
  EXPECT_EQ(ended["generated_tokens"], 3);
  EXPECT_EQ(ended["cached_tokens"], 5);
  EXPECT_GT(ended["ttft_ms"].get<double>(), 0);
  EXPECT_LE(ended["ttft_ms"], ended["total_ms"]);
}

TEST(Page, LiveSaysWhereTheEngineHasARequest) {
  const TimePoint now = TimePoint{} + 10s;
  LiveView view{.snapshots = {{.rank = 3,
                               .seen = {.id = RequestId{7},
                                        .where = RequestSnapshot::Where::prefilling,
                                        .prompt_tokens = 90,
                                        .computed_tokens = 64,
                                        .cached_tokens = 32}}},
                .num_texts = 2,
                .is_ready = false};
  view.not_ready.message = "rank 1 is gone";
  for (const uint64_t id : {7, 8}) {
    LiveText& text = view.texts.emplace_back();
    text.request = RequestId{id};
    text.received = now - 2s;
    text.prompt_tokens = 90;
  }
  view.texts[1].has_begun = true;
  const Json json = live_json(view, now);
  EXPECT_EQ(json["why_not_ready"], "rank 1 is gone");
  EXPECT_EQ(json["requests"][0]["state"], "prompt");
  EXPECT_EQ(json["requests"][0]["computed_tokens"], 64);
  EXPECT_EQ(json["requests"][0]["dp_rank"], 3);
  EXPECT_EQ(json["requests"][0]["age_seconds"], 2.0);
  EXPECT_EQ(json["requests"][1]["state"], "answer");
  EXPECT_EQ(json["requests"][1]["dp_rank"], nullptr);
}

TEST(Page, TheNewestThatEndedAreKept) {
  EndedTexts ended;
  Answer answer;
  answer.prepared.request.api = &kChatApi;
  answer.choices.resize(1);
  for (int i = 1; i <= 70; ++i)
    ended.note(answer, 0, {.finish = FinishReason::length, .generated_tokens = i});
  const auto texts = ended.texts();
  ASSERT_EQ(texts.size(), EndedTexts::kKept);
  EXPECT_EQ(texts.front().number, 7u);
  EXPECT_EQ(texts.back().generated_tokens, 70);
}

TEST(Page, StepsAreToldWhereTheyAreBooked) {
  EXPECT_EQ(steps_json(RecentSteps({}))["ranks"][0]["steps"], Json::array());
  EXPECT_EQ(steps_json(RecentSteps({}))["details"], Json::array());

  FakeClock clock;
  clock.advance(1h);
  RecentSteps recent({.orders = &OrderTable::builtin(), .spans_per_step = 100});
  Ledger ledger({.num_layers = 2}, clock);
  for (int i = 0; i < 2; ++i) {
    ledger.begin_step(clock.now());
    ledger.begin_pass(0, {}, {Phase::prefill, 32, 640}, false);
    ledger.begin_op(1, Op::experts, 0);
    clock.advance(1500us);
    ledger.end_op();
    ledger.end_step(clock.now());
    recent.note(0, ledger);
  }
  const Json steps = steps_json(recent);
  EXPECT_EQ(steps["booked"], true);
  ASSERT_EQ(steps["details"].size(), 1u);
  EXPECT_EQ(steps["details"][0]["step"], 2);
  const Json all = Json::parse(step_text(recent, "/steps/all").value_or("null"));
  ASSERT_EQ(all["details"].size(), 2u);
  EXPECT_EQ(all["details"][1], steps["details"][0]);
  EXPECT_EQ(all["ranks"], steps["ranks"]);
  const Json& step = steps["ranks"][0]["steps"][1];
  EXPECT_EQ(step["step"], 2);
  EXPECT_EQ(step["phase"], "prefill");
  EXPECT_EQ(step["rows"], 32);
  EXPECT_EQ(step["took_us"], 1500.0);
  const auto experts = static_cast<size_t>(Op::experts);
  EXPECT_EQ(steps["ops"][experts], "experts");
  EXPECT_EQ(step["compute_us"][experts], 1500.0);

  const auto text = step_text(recent, "/steps/2");
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_EQ(Json::parse(*text)["ranks"][0]["spans"],
            Json::parse(R"([["op","experts",0,0,1,0.0,1500.0,0]])"));
  EXPECT_EQ(step_text(recent, "/steps/9").error().code, ErrorCode::not_found);
  EXPECT_EQ(step_text(recent, "/steps/2x").error().code, ErrorCode::not_found);
  const auto trace = step_text(recent, "/steps/trace");
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(Json::parse(*trace)["traceEvents"].is_array(), true);
}

}  // namespace
}  // namespace hocket
