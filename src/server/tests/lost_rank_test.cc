// Answers of another rank that is lost in their middle.
#include "server/generation/prepared_request.h"
#include "server/http/error_map.h"
#include "server/reply/answer_progress.h"
#include "server/tests/rank_router_testing.h"

namespace hocket {
namespace {

using std::chrono::seconds;
using LostRankTest = ForwardingRank;

// Rank 0 continues both answers. It has no progress of the stream, so all of it follows what was
// passed on before.
TEST_F(LostRankTest, ThisRankGoesOnWhenARankEndsInMidAnswer) {
  TestClient streaming = ask(stream_);
  const ForwardedRequest first = take();
  ASSERT_NE(first.exchange, nullptr);
  EXPECT_NE(first.request.header(kAnswerHeader), "");
  first.exchange->start_stream("text/event-stream");
  first.exchange->write("data: {\"text\":\"whole\"}\n\ndata: {\"text\":\"ha");
  ASSERT_TRUE(streaming.until("whole\"}\n\n", seconds(3)).second);
  TestClient plain = ask(body_);
  const ForwardedRequest second = take();
  ASSERT_NE(second.exchange, nullptr);
  link_->set(TestProxy::Link::cut);

  const TestAnswer answer = plain.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(Json::parse(answer.body)["text"], "here");
  const auto rest = streaming.until("data: [DONE]\n\n", seconds(3));
  EXPECT_TRUE(rest.second);
  EXPECT_EQ(rest.first.find("\"ha"), std::string::npos) << rest.first;  // no half event
  EXPECT_THAT(rest.first, testing::HasSubstr("\"text\":\"here\""));
  EXPECT_TRUE(eventually([&] { return metric("forwarded_requests_failed_total") == 2; }));
  EXPECT_EQ(metric("forwarded_requests_resumed_total"), 2u);
}

// The connection reports nothing; the control plane does.
TEST_F(LostRankTest, ABlackHoleIsLeftWhenTheRankIsLost) {
  TestClient streaming = ask(stream_);
  const ForwardedRequest first = take();
  ASSERT_NE(first.exchange, nullptr);
  first.exchange->start_stream("text/event-stream");
  first.exchange->write("data: 1\n\n");
  ASSERT_TRUE(streaming.until("data: 1\n\n", seconds(3)).second);
  TestClient plain = ask(body_);
  const ForwardedRequest second = take();
  ASSERT_NE(second.exchange, nullptr);
  link_->set(TestProxy::Link::frozen);
  planes_[1].reset();

  EXPECT_EQ(plain.receive(seconds(2)).status, 200);
  const auto rest = streaming.until("data: [DONE]\n\n", seconds(2));
  EXPECT_TRUE(rest.second);
  EXPECT_THAT(rest.first, testing::HasSubstr("\"text\":\"here\""));
}

class SilentRankTest : public ForwardingRank {
 protected:
  SilentRankTest() { probe_interval_ = milliseconds(50); }
};

// Its answer may take long, and its port says meanwhile that it lives.
TEST_F(SilentRankTest, ARankThatAnswersProbesKeepsItsRequests) {
  TestClient plain = ask(body_);
  const ForwardedRequest asked = take();
  EXPECT_TRUE(eventually([&] { return num_probes_ > 2 * RankProbes::kMaxUnanswered; }));
  asked.exchange->respond(200, "application/json", R"({"a":1})");
  EXPECT_EQ(plain.receive().body, R"({"a":1})");
  EXPECT_EQ(metric("forwarded_requests_failed_total"), 0u);
}

// The control plane says that the rank is there, and its port takes requests and answers none.
TEST_F(SilentRankTest, ARankThatAnswersNoProbeLosesItsRequests) {
  TestClient plain = ask(body_), streaming = ask(stream_);
  const ForwardedRequest first = take(), second = take();
  link_->set(TestProxy::Link::frozen);
  EXPECT_EQ(Json::parse(plain.receive(seconds(5)).body)["text"], "here");
  EXPECT_TRUE(streaming.until("data: [DONE]\n\n", seconds(5)).second);
  EXPECT_EQ(metric("forwarded_requests_resumed_total"), 2u);
}

// A response of which the client has nothing yet is kept here, and its id says so. The id of one
// that has begun cannot change any more, but the answer is here.
TEST_F(LostRankTest, AResponseGoesOnAndIsKeptHere) {
  TestClient streaming = ask({{"input", "x"}, {"stream", true}}, "/v1/responses");
  const ForwardedRequest first = take();
  const auto identity = read_identity(first.request.header(kAnswerHeader));
  ASSERT_TRUE(identity);
  EXPECT_THAT(identity->id, testing::StartsWith("resp_1_"));
  first.exchange->start_stream("text/event-stream");
  const std::string begun = "event: response.created\ndata: {}\n\n";
  std::string told;
  append_progress(told, 0, {}, begun);
  first.exchange->write(told);
  ASSERT_TRUE(streaming.until("response.created", seconds(3)).second);
  TestClient plain = ask({{"input", "x"}}, "/v1/responses");
  const ForwardedRequest second = take();
  ASSERT_NE(second.exchange, nullptr);
  link_->set(TestProxy::Link::cut);

  const TestAnswer answer = plain.receive();
  EXPECT_EQ(answer.status, 200);
  const Json body = Json::parse(answer.body);
  EXPECT_THAT(body["id"].get<std::string>(), testing::StartsWith("resp_0_"));
  const auto rest = streaming.until("response.completed\"", seconds(3));
  EXPECT_TRUE(rest.second);
  for (const std::string& id : {body["id"].get<std::string>(), identity->id})
    EXPECT_TRUE(eventually([&] {
      return rank_0_->ask("GET", "/v1/responses/" + id).status == 200;
    })) << id;
}

// The rank ends before the first byte of answers that it was asked for over kept connections.
TEST_F(LostRankTest, RequestsThatALostRankHadTakenAreTakenOver) {
  TestClient first = ask(body_), second = ask(body_);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(take().exchange->respond(200, kJsonType, "{}"));
  ASSERT_EQ(first.receive().status, 200);
  ASSERT_EQ(second.receive().status, 200);
  TestClient plain = ask(body_), streaming = ask(stream_);
  const ForwardedRequest held[] = {take(), take()};
  link_.reset();
  for (TestClient* client : {&plain, &streaming}) {
    const TestAnswer answer = client->receive();
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_THAT(answer.body, testing::HasSubstr("\"text\":\"here\""));
  }
  ASSERT_EQ(rank_0_->engine.seen.size(), 2u);
  for (const RequestInput& input : rank_0_->engine.seen) EXPECT_TRUE(input.taken_over);
}

// As many texts are under way here as may be. Those of the lost rank were within its own limit.
TEST_F(LostRankTest, TheLimitOfTextsRefusesNoneThatAnotherRankHad) {
  TestClient streaming = ask(stream_);
  const ForwardedRequest forwarded = take();
  forwarded.exchange->start_stream("text/event-stream");
  rank_0_->engine.pace_us = 20'000;
  rank_0_->engine.script = [](const RequestInput&) { return std::vector(4000, TokenId{300}); };
  rank_0_->engine.rank_loads.write({{}, {.num_requests = 9, .num_tokens = 9000}});
  const Json many = {{"input_ids", {5}},
                     {"sampling_params", {{"n", 64}, {"max_new_tokens", 4000}}}};
  std::vector<TestClient> clients;
  const int limit =
      ServerSettings().memory.max_queued_requests + 2 * rank_0_->engine.info_.max_running_requests;
  for (int i = 0; i < limit / 64; ++i) clients.push_back(ask(many));
  ASSERT_TRUE(eventually([&] { return rank_0_->engine.num_running() == limit; }));
  EXPECT_EQ(rank_0_->post("/generate", body_, 429)["error"]["code"], "queue_full");
  say(*rank_0_, "here");
  link_->set(TestProxy::Link::cut);
  const auto rest = streaming.until("data: [DONE]\n\n", seconds(5));
  EXPECT_TRUE(rest.second);
  EXPECT_THAT(rest.first, testing::HasSubstr("\"text\":\"here\""));
}

TEST_F(LostRankTest, AWrongTaleOfProgressEndsTheStream) {
  TestClient client = ask(stream_);
  const ForwardedRequest asked = take();
  asked.exchange->start_stream("text/event-stream");
  asked.exchange->write("data: 1\n\n: progress 0 x\n");
  const auto rest = client.until("data: [DONE]\n\n", seconds(3));
  EXPECT_TRUE(rest.second);
  EXPECT_THAT(rest.first, testing::HasSubstr("progress of its answer"));
}

}  // namespace
}  // namespace hocket
