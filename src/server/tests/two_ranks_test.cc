// Two whole servers as two ranks of one service, with fake models.
#include <gtest/gtest.h>

#include <map>
#include <semaphore>

#include "cluster/ranks_testing.h"
#include "server/ranks/rank_router.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

using std::chrono::seconds;

class TwoRanks : public Ranks {
 protected:
  void SetUp() override {
    start_all(2, 1);
    for (int rank = 0; rank < 2; ++rank) serve(rank);
    wait_for_addresses();
  }
  void TearDown() override { servers_.clear(); }
  void serve(int rank) {
    ServerSettings settings;
    settings.parallel.dp_routing = "shortest";
    servers_.push_back(
        std::make_unique<TestServer>(TestServer::Text::bundled, settings, &plane(rank)));
    say(*servers_.back(), rank == 0 ? "zero" : "one");
    // Each rank sees the other one idle and itself full.
    std::vector<RankLoad> loads(2);
    loads[static_cast<size_t>(rank)] = {.num_requests = 9, .num_tokens = 900};
    servers_.back()->engine.rank_loads.write(loads);
  }
  TestServer& server(int rank) { return *servers_[static_cast<size_t>(rank)]; }
  Json peer_of(int rank, int peer) {
    return server(rank).get("/get_server_info")["peers"][static_cast<size_t>(peer)];
  }
  void wait_for_addresses() {
    for (int rank = 0; rank < 2; ++rank)
      ASSERT_TRUE(eventually([&] { return !peer_of(rank, 1 - rank)["address"].is_null(); }));
  }
  // Rank 1 is lost until it is back; its process runs on.
  void lose_rank_1() { proxy_->set(TestProxy::Link::cut); }
  void bring_rank_1_back() {
    proxy_->set(TestProxy::Link::up);
    ASSERT_TRUE(eventually([&] { return peer_of(0, 1)["there"] == true; }));
    wait_for_addresses();
  }
  static Json text_body(const char* rid = "r") {
    return {{"text", "x"}, {"rid", rid}, {"sampling_params", {{"max_new_tokens", 9}}}};
  }
  // Starts a stream that lasts until it is aborted; rank 0 gets the request and rank 1 answers it.
  TestClient long_stream(const char* rid) {
    server(1).engine.pace_us = 2000;
    server(1).engine.script = [](const RequestInput&) { return std::vector(4000, TokenId{300}); };
    TestClient client(server(0).server->port());
    Json body = text_body(rid);
    body["stream"] = true;
    body["sampling_params"]["max_new_tokens"] = 4000;
    client.send(TestServer::request_text("POST", "/generate", body.dump()));
    EXPECT_TRUE(client.until("\"text\"", seconds(3)).second);
    return client;
  }

  std::vector<std::unique_ptr<TestServer>> servers_;
};

TEST_F(TwoRanks, AnyDoorLeadsToAnyRankAndNoFurther) {
  EXPECT_EQ(server(0).post("/generate", text_body())["text"], "one");
  EXPECT_EQ(server(1).post("/generate", text_body())["text"], "zero");
  const Events events = server(0).stream("/v1/chat/completions", chat_body());
  EXPECT_TRUE(events.done);
  EXPECT_EQ(joined(events, 0, "delta"), "one");
  EXPECT_EQ(server(0).engine.seen.size(), 1u);
  EXPECT_EQ(server(1).engine.seen.size(), 2u);
  // The other rank sees the same client number.
  Json mine = text_body();
  mine["user"] = "somebody";
  server(0).post("/generate", mine);
  const uint64_t there = server(1).engine.last_seen().client;
  server(0).engine.rank_loads.write({{}, {.num_tokens = 900}});
  EXPECT_EQ(server(0).post("/generate", mine)["text"], "zero");
  EXPECT_EQ(server(0).engine.last_seen().client, there);
}

TEST_F(TwoRanks, ErrorsOfARequestAreFoundAtTheDoor) {
  const Json said = server(0).post("/generate", {{"text", 7}}, 400);
  EXPECT_EQ(said["error"]["param"], "text");
  EXPECT_TRUE(server(1).engine.seen.empty());
  server(1).engine.refusal = error(ErrorCode::queue_full, "1024 requests wait");
  EXPECT_EQ(server(0).post("/generate", text_body(), 429)["error"]["code"], "queue_full");
}

TEST_F(TwoRanks, ThePortForRanksTakesTheirKeyOnly) {
  const std::string place = peer_of(0, 1)["address"];
  const int port = std::atoi(place.c_str() + place.rfind(':') + 1);
  const std::string told = plane(0).get("http/1").value();
  const auto status = [&](std::string_view key) {
    TestClient client(port);
    const std::string body = text_body().dump();
    client.send(
        fmt::format("POST /generate HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n"
                    "Content-Length: {}\r\n\r\n{}",
                    key, body.size(), body));
    return client.receive().status;
  };
  EXPECT_EQ(status(""), 401);
  EXPECT_EQ(status("guess"), 401);
  EXPECT_EQ(status(options(0).token), 401);
  EXPECT_TRUE(server(1).engine.seen.empty());
  EXPECT_EQ(status(told.substr(told.rfind(' ') + 1)), 200);
  EXPECT_EQ(server(1).engine.seen.size(), 1u);
}

TEST_F(TwoRanks, AnAnswerThatIsKeptIsFoundFromAnyRank) {
  const Json made = server(0).post("/v1/responses", {{"input", "x"}});  // by rank 1
  const std::string id = made["id"], path = "/v1/responses/" + id;
  EXPECT_TRUE(id.starts_with("resp_1_"));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(server(rank).get(path), made);
    EXPECT_EQ(server(rank).get(path + "/input_items?limit=1")["data"].size(), 1u);
    // It continues on the rank that keeps it, whichever rank is asked and whichever is idle.
    const Json next =
        server(rank).post("/v1/responses", {{"input", "y"}, {"previous_response_id", id}});
    EXPECT_TRUE(next["id"].get<std::string>().starts_with("resp_")) << next;
    EXPECT_EQ(next["previous_response_id"], id);
  }
  EXPECT_EQ(server(0).ask("DELETE", path).status, 200);
  EXPECT_EQ(server(0).get(path, 404)["error"]["code"], "not_found");
  server(1).get(path, 404);
  server(0).get("/v1/responses/resp_7_1", 404);  // there is no rank 7
  // A path with '%' escapes goes to the other rank unchanged.
  for (const char* odd : {"resp_1_a%20b", "resp_1_a%3Fb", "resp_1_%C3%A9%25"})
    EXPECT_EQ(server(0).get(std::string("/v1/responses/") + odd, 404),
              server(1).get(std::string("/v1/responses/") + odd, 404))
        << odd;
  EXPECT_EQ(server(0).post("/v1/messages", {{"messages", 5}}, 400)["type"], "error");
}

TEST_F(TwoRanks, AbortsReachAllRanks) {
  TestClient client = long_stream("there");
  EXPECT_EQ(server(0).post("/abort_request", {{"rid", "other"}})["aborted"], 0);
  const Json said = server(0).post("/abort_request", {{"rid", "there"}});
  EXPECT_EQ(said, (Json{{"aborted", 1}}));
  EXPECT_TRUE(client.until("[DONE]", seconds(3)).second);
  TestClient again = long_stream("again");
  EXPECT_EQ(server(0).post("/abort_request", {{"abort_all", true}})["aborted"], 1);
  EXPECT_TRUE(again.until("[DONE]", seconds(3)).second);
  EXPECT_EQ(server(1).engine.num_aborted, 2);
}

TEST_F(TwoRanks, AFlushIsOfAllRanksAndSaysWhoRefuses) {
  EXPECT_EQ(server(0).post("/flush_cache", Json::object())["flushed"], true);
  const TestClient client = long_stream("busy");
  const Json said = server(0).post("/flush_cache", Json::object(), 400);
  EXPECT_THAT(said["error"]["message"].get<std::string>(),
              testing::AllOf(testing::HasSubstr("rank 1 (h1)"), testing::HasSubstr("in use")));
}

TEST_F(TwoRanks, InfosTellOfAllRanks) {
  const Json loads = server(1).get("/get_load");
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_EQ(loads[0]["dp_rank"], 0);
  EXPECT_EQ(loads[0]["num_reqs"], 0);
  EXPECT_EQ(loads[1]["dp_rank"], 1);
  EXPECT_EQ(loads[1]["num_tokens"], 7);  // from its own cache
  EXPECT_EQ(server(0).get("/get_load")[0]["num_tokens"], 7);
  const Json info = server(1).get("/get_server_info");
  EXPECT_EQ(info["rank"], 1);
  EXPECT_EQ(info["epoch"], 1);
  EXPECT_EQ(info["peers"][0]["host"], "h0");
  EXPECT_EQ(info["peers"][0]["there"], true);
  // Each rank reports its own overlap; rank 0 also reports the planner, which works for all.
  server(0).engine.overlapped.write({.ranks = {{.rank = 0}}, .planner = PlannerState{}});
  server(1).engine.overlapped.write({.ranks = {{.rank = 1}}});
  for (int rank = 0; rank < 2; ++rank) {
    const Json overlap = server(rank).get("/overlap");
    ASSERT_EQ(overlap["ranks"].size(), 1u);
    EXPECT_EQ(overlap["ranks"][0]["dp_rank"], rank);
    EXPECT_EQ(overlap["planner"].is_null(), rank == 1);
  }
  const std::string metrics = server(1).ask("GET", "/metrics").body;
  EXPECT_THAT(metrics,
              testing::HasSubstr("hocket:cluster_rank_up{model_name=\"tiny\",rank=\"0\"} 1"));
  EXPECT_THAT(metrics, testing::HasSubstr("hocket:cluster_member_ranks{model_name=\"tiny\"} 2"));
  EXPECT_THAT(metrics, testing::HasSubstr("hocket:cluster_epoch{model_name=\"tiny\"} 1"));
  EXPECT_THAT(metrics, testing::HasSubstr("dp_rank=\"1\""));
  EXPECT_THAT(metrics, testing::Not(testing::HasSubstr("dp_rank=\"0\"")));
}

TEST_F(TwoRanks, ALostRankIsSaidEverywhereAndForgottenWhenItIsBack) {
  server(0).engine.lost.write(
      error(ErrorCode::lost_rank, "rank 1 (h1) is not there: silent for 3.0 s"));
  EXPECT_THAT(server(0).get("/readyz", 503)["error"]["message"].get<std::string>(),
              testing::HasSubstr("rank 1 (h1)"));
  EXPECT_EQ(server(0).get("/livez")["status"], "ok");
  const TestAnswer refused = server(0).ask("POST", "/generate", text_body().dump());
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.head.find("Retry-After"), std::string::npos);
  server(0).engine.lost.write(std::nullopt);

  // Rank 1 is restarted: another process, another port.
  const Json old_address = peer_of(0, 1)["address"];
  servers_.pop_back();
  planes_[1].reset();
  ASSERT_TRUE(eventually([&] { return peer_of(0, 1)["there"] == false; }));
  start(1, port_);
  enter_all();
  serve(1);
  ASSERT_TRUE(eventually([&] {
    const Json address = peer_of(0, 1)["address"];
    return !address.is_null() && address != old_address;
  }));
  EXPECT_EQ(server(0).post("/generate", text_body())["text"], "one");
}

TEST_F(TwoRanks, ARankThatDrainsLeavesItsShareToOthers) {
  const TestClient client = long_stream("last");
  auto drained =
      std::async(std::launch::async, [&] { return server(1).server->drain(seconds(20)); });
  EXPECT_TRUE(eventually([&] {
    return Json::parse(server(0).ask("POST", "/generate", text_body().dump()).body)
               .value("text", "") == "zero";
  }));
  server(1).engine.pace_us = 1;
  EXPECT_TRUE(drained.get());
}

// Returns a block without the facts that differ between two requests, or between two ranks.
Json comparable(Json block) {
  for (const char* name : {"id", "created", "timings"}) block.erase(name);
  if (block.contains("message")) block["message"].erase("id");
  if (block.contains("meta_info"))
    block["meta_info"] = {{"finish_reason", block["meta_info"]["finish_reason"]},
                          {"completion_tokens", block["meta_info"]["completion_tokens"]},
                          {"logprobs", block["meta_info"].value("output_token_logprobs", Json())}};
  return block;
}

// Returns the blocks by choice, because choices are sent as they arrive.
std::map<int, std::vector<Json>> by_choice(std::string_view stream) {
  std::map<int, std::vector<Json>> blocks;
  SseReader reader;
  for (const std::string& data : reader.feed(stream)) {
    if (data == kSseDone) {
      blocks[-2].push_back("done");
      continue;
    }
    const Json block = Json::parse(data);
    int choice = block.value("index", -1);
    if (block.contains("choices") && !block["choices"].empty())
      choice = block["choices"][0]["index"];
    blocks[choice].push_back(comparable(block));
  }
  return blocks;
}

// Rank 1 is lost at every point of a stream that it computes for rank 0, whose client gets the
// stream that it would have got.
TEST_F(TwoRanks, AStreamGoesOnWhereItWasWhenItsRankIsLost) {
  const auto script = [](const RequestInput& input) {
    std::vector<TokenId> tokens = ids_of("One two three. Stop, and some words more: ");
    for (int i = 0; i < 12; ++i)  // a token may be any, and not all are whole characters
      tokens.push_back(TokenId{300 + static_cast<int>((input.sampling.seed >> (4 * i)) & 15) * 90});
    return tokens;
  };
  for (int rank = 0; rank < 2; ++rank) server(rank).engine.script = script;
  Json chat = chat_body(), text = {{"prompt", "x"}}, message = chat_body(), generate = text_body();
  chat.update({{"n", 2}, {"seed", 5}, {"stream_options", {{"include_usage", true}}}});
  text.update({{"logprobs", 2}, {"seed", 6}, {"max_tokens", 20}});
  message.update({{"max_tokens", 25}, {"model", "tiny"}});
  generate["sampling_params"] = {{"max_new_tokens", 30}, {"sampling_seed", 7}};
  Json stops = chat_body();
  stops.update({{"stop", "words m"}, {"seed", 8}});
  const std::pair<const char*, Json> requests[] = {{"/v1/chat/completions", chat},
                                                   {"/v1/completions", text},
                                                   {"/v1/messages", message},
                                                   {"/generate", generate},
                                                   {"/v1/chat/completions", stops}};
  uint64_t num_lost = 0;
  for (auto [path, body] : requests) {
    SCOPED_TRACE(path);
    body["stream"] = true;
    const bool seeded = std::string_view(path) != "/v1/messages";
    server(0).engine.pace_us = server(1).engine.pace_us = 20;
    ASSERT_NO_FATAL_FAILURE(bring_rank_1_back());
    const std::string want = server(0).ask("POST", path, body.dump()).body;
    const auto wanted = by_choice(want);
    ASSERT_GE(want.size(), 1000u) << want;
    for (size_t at = 400; at < want.size(); at += want.size() / 3) {
      SCOPED_TRACE(at);
      ASSERT_NO_FATAL_FAILURE(bring_rank_1_back());
      server(1).engine.pace_us = 25'000;
      TestClient client(server(0).server->port());
      client.send(TestServer::request_text("POST", path, body.dump()));
      ASSERT_TRUE(client.fill(at, seconds(3)));
      lose_rank_1();
      const TestAnswer answer = client.receive();
      ASSERT_TRUE(eventually([&] { return peer_of(0, 1)["there"] == false; }));
      ++num_lost;
      ASSERT_EQ(answer.body.find("progress"), answer.body.npos) << answer.body;
      if (seeded) {
        ASSERT_EQ(by_choice(answer.body), wanted) << answer.body;
        continue;
      }
      // Without a seed the ranks agree on one, so that the answer continues as it began.
      EXPECT_EQ(answer.body.find("error"), answer.body.npos) << answer.body;
      EXPECT_EQ(by_choice(answer.body).size(), wanted.size());
    }
  }
  EXPECT_GT(num_lost, 10u);
  EXPECT_GE(server(0).engine.seen.size(), 6u);
  bool knew = false;
  for (const RequestInput& input : server(0).engine.seen) knew |= !input.answer.empty();
  EXPECT_TRUE(knew);
}

// A rank that ends has no time for the answers that it computes for another one. None of them looks
// whole: that one continues them.
TEST_F(TwoRanks, AnswersOfARankThatEndsGoOnAtTheOneThatWasAsked) {
  const auto script = [](const RequestInput&) { return std::vector(60, TokenId{300}); };
  for (int rank = 0; rank < 2; ++rank) server(rank).engine.script = script;
  Json body = text_body();
  body["sampling_params"] = {{"max_new_tokens", 60}, {"sampling_seed", 7}};
  const Json whole = server(0).post("/generate", body);
  Json streamed = body;
  streamed["stream"] = true;
  const std::string want = server(0).ask("POST", "/generate", streamed.dump()).body;
  server(1).engine.pace_us = 25'000;
  TestClient client(server(0).server->port()), plain(server(0).server->port());
  client.send(TestServer::request_text("POST", "/generate", streamed.dump()));
  plain.send(TestServer::request_text("POST", "/generate", body.dump()));
  ASSERT_TRUE(client.fill(400, seconds(3)));
  ASSERT_TRUE(eventually([&] { return server(1).engine.num_running() == 2; }));
  EXPECT_FALSE(server(1).server->drain(Duration{}));
  EXPECT_EQ(by_choice(client.receive().body), by_choice(want));
  EXPECT_EQ(comparable(Json::parse(plain.receive().body)), comparable(whole));
  ASSERT_EQ(server(0).engine.num_seen(), 2u);
  EXPECT_TRUE(server(0).engine.last_seen().taken_over);
}

// Rank 0 takes the answer over just when it cuts off all of its own; it keeps nobody waiting.
TEST_F(TwoRanks, AnAnswerThatIsTakenOverWhileAllAreCutOffIsCutOff) {
  TestClient client = long_stream("r");
  server(0).engine.script = server(1).engine.script;
  server(0).engine.pace_us = 2000;
  std::counting_semaphore<> takes_over(0);
  server(0).engine.entering = [&] {
    takes_over.release();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  EXPECT_FALSE(server(1).server->drain(Duration{}));
  takes_over.acquire();
  EXPECT_FALSE(server(0).server->drain(Duration{}));
  EXPECT_TRUE(server(0).engine.last_seen().taken_over);
  EXPECT_TRUE(client.until("[DONE]", seconds(3)).first.contains("shutting_down"));
}

// Without a stream the client has got nothing, so the answer begins again.
TEST_F(TwoRanks, AnAnswerIsMadeAnewWhenItsRankIsLost) {
  for (int rank = 0; rank < 2; ++rank)
    server(rank).engine.script = [](const RequestInput& input) {
      return std::vector(8, TokenId{400 + static_cast<int>(input.sampling.seed % 1000)});
    };
  server(1).engine.pace_us = 500'000;
  TestClient client(server(0).server->port());
  client.send(TestServer::request_text("POST", "/generate", text_body().dump()));
  ASSERT_TRUE(eventually([&] { return server(1).engine.num_seen() == 1; }));
  lose_rank_1();
  EXPECT_EQ(client.receive().status, 200);
  ASSERT_EQ(server(0).engine.num_seen(), 1u);
  EXPECT_EQ(server(0).engine.last_seen().sampling.seed, server(1).engine.last_seen().sampling.seed);
  EXPECT_TRUE(server(0).engine.last_seen().taken_over);
  EXPECT_THAT(server(0).ask("GET", "/metrics").body,
              testing::HasSubstr("hocket:forwarded_requests_resumed_total{model_name=\"tiny\"} 1"));
}

TEST_F(TwoRanks, AClientThatLeavesAStreamThatWentOnIsForgotten) {
  {
    TestClient client = long_stream("there");
    server(0).engine.pace_us = 2000;
    server(0).engine.script = server(1).engine.script;
    lose_rank_1();
    ASSERT_TRUE(eventually([&] { return server(0).engine.num_running() == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return server(0).engine.num_running() == 0; }));
  EXPECT_EQ(server(0).engine.num_aborted, 1);
}

TEST_F(TwoRanks, WhatEndsTheProcessIsSaidByTheWatchdog) {
  EXPECT_TRUE(server(1).server->watchdog());
  server(1).engine.failed.write(error(ErrorCode::lost_rank, "rank 0 was away for 60 s"));
  const auto over = server(1).server->watchdog();
  ASSERT_FALSE(over);
  EXPECT_EQ(exit_status(over.error().code), 5);
}

}  // namespace
}  // namespace hocket
