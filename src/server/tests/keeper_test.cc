// Streams of a rank that another rank keeps, and streams of others that continue here.
#include "server/access/request_sender.h"
#include "server/generation/prepared_request.h"
#include "server/tests/rank_router_testing.h"

namespace hocket {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

class KeeperTest : public ForwardingRank {
 protected:
  void SetUp() override {
    settings_.http.request_memory_mib = 8;
    ForwardingRank::SetUp();
    // Rank 1 is full, so rank 0 computes.
    rank_0_->engine.rank_loads.write({{}, {.num_requests = 9, .num_tokens = 900}});
  }
  size_t num_kept() {
    std::lock_guard lock(mutex_);
    return kept_.size();
  }
  TestClient come_back(const std::string& target) {
    TestClient client(rank_0_->server->port());
    client.send(TestServer::request_text("GET", target, ""));
    return client;
  }
};

TEST_F(KeeperTest, AnotherRankHasTheRequestBeforeItBegins) {
  size_t kept_at_begin = 0;
  rank_0_->engine.entering = [&] { kept_at_begin = num_kept(); };
  TestClient client = ask(stream_);
  const auto answer = client.until("data: [DONE]\n\n", seconds(3));
  EXPECT_TRUE(answer.second);
  EXPECT_THAT(answer.first, HasSubstr("\"text\":\"here\""));
  EXPECT_EQ(kept_at_begin, 1u);
  std::lock_guard lock(mutex_);
  ASSERT_EQ(kept_.size(), 1u);
  EXPECT_EQ(kept_[0].body, stream_.dump());
  EXPECT_EQ(kept_[0].header(kKeptPathHeader), "/generate");
  EXPECT_EQ(kept_[0].header(kChoicesHeader), "1");
  const auto identity = read_identity(kept_[0].header(kAnswerHeader));
  ASSERT_TRUE(identity);
  EXPECT_THAT(answer.first, HasSubstr(identity->id));
}

TEST_F(KeeperTest, AnAnswerThatIsNoStreamIsNotKept) {
  EXPECT_EQ(ask(body_).receive().status, 200);
  EXPECT_EQ(num_kept(), 0u);
}

TEST_F(KeeperTest, ASilentRankDelaysABeginOnlyBriefly) {
  link_->set(TestProxy::Link::frozen);
  TestClient client = ask(stream_);
  EXPECT_TRUE(client.until("data: [DONE]\n\n", seconds(2)).second);
}

// The keeper must not forget a stream that is cut off, or no rank could continue it.
TEST_F(KeeperTest, AStreamThatADrainCutsOffStaysKept) {
  rank_0_->engine.pace_us = 20'000;
  rank_0_->engine.script = [](const RequestInput&) { return std::vector(500, TokenId{300}); };
  TestClient client = ask(stream_);
  ASSERT_TRUE(client.until("\"text\":", seconds(3)).second);
  ASSERT_EQ(num_kept(), 1u);
  EXPECT_FALSE(rank_0_->server->drain(milliseconds(300)));
  const std::string rest = client.until("data: [DONE]\n\n", seconds(3)).first;
  EXPECT_THAT(rest, HasSubstr("shutting_down"));
  EXPECT_THAT(rest, Not(HasSubstr("\"abort\"")));
  std::lock_guard lock(mutex_);
  EXPECT_THAT(changes_, Not(HasSubstr("gone")));
}

TEST_F(KeeperTest, AKeeperThatHasNoCopyIsSentTheStreamAgain) {
  rank_0_->engine.pace_us = 20'000;
  rank_0_->engine.script = [](const RequestInput&) { return std::vector(500, TokenId{300}); };
  TestClient client = ask(stream_);
  ASSERT_TRUE(client.until("\"text\":", seconds(3)).second);
  ASSERT_EQ(num_kept(), 1u);
  {
    std::lock_guard lock(mutex_);
    const auto identity = read_identity(kept_[0].header(kAnswerHeader));
    ASSERT_TRUE(identity);
    answer_to_changes_ = Json{{"unknown", {identity->id}}}.dump();
  }
  EXPECT_TRUE(eventually([&] { return num_kept() == 2; }));
  std::lock_guard lock(mutex_);
  EXPECT_EQ(kept_[1].header(kAnswerHeader), kept_[0].header(kAnswerHeader));
}

// Without rank 1 the ranks do not serve, though its port for ranks answers still.
TEST_F(KeeperTest, TheKeepersStayWhileTheRanksDoNotServe) {
  rank_0_->engine.pace_us = 20'000;
  rank_0_->engine.script = [](const RequestInput&) { return std::vector(500, TokenId{300}); };
  TestClient client = ask(stream_);
  ASSERT_TRUE(client.until("\"text\":", seconds(3)).second);
  ASSERT_EQ(num_kept(), 1u);
  const auto has_news = [&] {
    std::lock_guard lock(mutex_);
    return std::exchange(changes_, "").find(" live 0:") != std::string::npos;
  };
  planes_[1].reset();
  ASSERT_TRUE(eventually([&] { return !plane(0).view().serves(); }));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(eventually(has_news)) << "one may be from before";
  EXPECT_EQ(num_kept(), 1u);
}

TEST_F(KeeperTest, AKeeperThatLeavesIsNotAsked) {
  plane(1).own_heartbeat().leave();
  EXPECT_TRUE(eventually([&] {
    const size_t before = num_kept();
    TestClient client = ask(stream_);
    EXPECT_TRUE(client.until("data: [DONE]\n\n", seconds(3)).second);
    return num_kept() == before;
  }));
}

class FewRequests : public KeeperTest {
 protected:
  FewRequests() {
    settings_.memory.max_queued_requests = 2;
    settings_.memory.max_running_requests = 1;
  }
};

// As many clients may wait for other ranks as this rank may have requests.
TEST_F(FewRequests, OtherRanksAreAskedForNoMoreClientsThanMayBeServed) {
  const auto most = static_cast<size_t>(settings_.memory.max_queued_requests +
                                        2 * rank_0_->engine.info().max_running_requests);
  std::vector<TestClient> waiting;
  std::vector<ForwardedRequest> asked;
  for (size_t i = 0; i < most; ++i) waiting.push_back(come_back("/v1/streams/cmpl-77"));
  for (size_t i = 0; i < most; ++i) asked.push_back(take());
  TestClient refused = come_back("/v1/streams/cmpl-77");
  EXPECT_EQ(refused.receive().status, 429);
}

// The test is rank 1 and has the record of a stream of its own.
TEST_F(KeeperTest, AStreamOfAnotherRankGoesOnHere) {
  rank_0_->engine.script = [](const RequestInput&) { return ids_of("one two three four five"); };
  const std::vector<TokenId> all = ids_of("one two three four five");
  RecordedRequest record{.identity = {.id = "cmpl-77", .created = 5, .call_seed = 6},
                         .path = "/v1/completions",
                         .body = R"({"prompt":"x","stream":true,"max_tokens":40})"};
  record.tokens = {{all[0], all[1], all[2]}};
  TestClient client = come_back("/v1/streams/cmpl-77?starting_after=1");
  const ForwardedRequest asked = take();
  EXPECT_EQ(asked.request.path, kTakePath);
  EXPECT_EQ(Json::parse(asked.request.body)["id"], "cmpl-77");
  EXPECT_EQ(principal_name(asked.request), "anonymous");
  ASSERT_TRUE(asked.exchange->respond(200, kJsonType, to_text(record)));
  const auto rest = client.until("data: [DONE]\n\n", seconds(3));
  EXPECT_TRUE(rest.second) << rest.first;
  EXPECT_EQ(rank_0_->engine.last_seen().answer, (std::vector<TokenId>{all[0], all[1]}));
  EXPECT_EQ(rest.first.find("\"text\":\"one\""), rest.first.npos) << rest.first;
  EXPECT_EQ(rest.first.find("\"text\":\" two\""), rest.first.npos) << rest.first;
  EXPECT_THAT(rest.first, HasSubstr("\"text\":\" three\""));
  EXPECT_THAT(rest.first, HasSubstr("\"id\":\"cmpl-77\""));
}

TEST_F(KeeperTest, TheRecordIsCountedWhileRanksAreAsked) {
  Json body = {{"prompt", "x"}, {"stream", true}, {"max_tokens", 4}};
  body["metadata"]["more"] = std::string(200'000, 'x');
  TestClient first = ask(body, "/v1/completions");
  const auto stream = first.until("data: [DONE]\n\n", seconds(3));
  ASSERT_TRUE(stream.second);
  const size_t at = stream.first.find("\"id\":\"") + 6;
  const std::string id = stream.first.substr(at, stream.first.find('"', at) - at);
  ASSERT_TRUE(eventually([&] { return metric("request_memory_bytes") == 0; }));
  TestClient client = come_back("/v1/streams/" + id);
  const ForwardedRequest asked = take();
  EXPECT_GE(metric("request_memory_bytes"), 200'000u);
  ASSERT_TRUE(asked.exchange->respond(404, kJsonType, "{}"));
  EXPECT_TRUE(client.until("data: [DONE]\n\n", seconds(3)).second);
  EXPECT_TRUE(eventually([&] { return metric("request_memory_bytes") == 0; }));
}

TEST_F(KeeperTest, ARecordThatTheClientMayNotHoldIsRefused) {
  TestClient client = come_back("/v1/streams/cmpl-77");
  ASSERT_TRUE(take().exchange->respond(200, kJsonType, std::string(size_t{9} << 20, 'x')));
  const TestAnswer refused = client.receive();
  EXPECT_EQ(refused.status, 413);
  EXPECT_THAT(refused.body, HasSubstr("--request-memory-mib"));
}

TEST_F(KeeperTest, AWrongRecordOfAnotherRankIsNotTaken) {
  for (const char* wrong : {"", "{}", "{\"answer\":\"1 2 other\"}"}) {
    TestClient client = come_back("/v1/streams/cmpl-77");
    ASSERT_TRUE(take().exchange->respond(200, kJsonType, wrong));
    EXPECT_EQ(client.receive().status, 404) << wrong;
  }
}

// The silent rank may have the stream.
TEST_F(KeeperTest, ASilentRankDelaysAClientThatComesBackByASecond) {
  link_->set(TestProxy::Link::frozen);
  const TestAnswer answer = come_back("/v1/streams/cmpl-77").receive(seconds(3));
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.head, HasSubstr("Retry-After"));
  EXPECT_EQ(error_of(answer)["code"], "lost_rank");
  EXPECT_THAT(answer.body, HasSubstr("rank 1"));
}

}  // namespace
}  // namespace hocket
