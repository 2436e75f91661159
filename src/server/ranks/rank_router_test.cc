// The router of one rank and another rank, whose answers the test gives: bytes, faults, memory.
#include "server/ranks/rank_router.h"

#include <gmock/gmock.h>

#include <atomic>

#include "base/count_allocations_testing.h"
#include "base/log.h"
#include "server/access/client_key.h"
#include "server/generation/api.h"
#include "server/http/sse.h"
#include "server/ranks/other_rank_testing.h"
#include "server/reply/fake_engine_testing.h"

namespace hocket {
namespace {

using std::chrono::seconds;

constexpr const char* kOwnAnswer = R"({"by":"rank 0"})";

class OwnFormat final : public ApiFormat {
 public:
  std::string next_block(const Answer&, const ChoiceAnswer& choice,
                         WrittenChoices written) const override {
    StreamCursor& sent = written_of(choice, written).sent;
    return choice.ended && !std::exchange(sent.end, true) ? kOwnAnswer : "";
  }
  std::string closing_block(const Answer&) const override { return ""; }
  std::string whole(const Answer&, WrittenChoices) const override { return kOwnAnswer; }
};

const ApiFormat& own_format() {
  static const OwnFormat format;
  return format;
}

// Runs when the rank of a request is chosen, and before the request is sent there; may be empty.
std::function<void()> when_chosen;
std::string id_when_chosen(std::string_view id, int) {
  if (const auto run = std::exchange(when_chosen, nullptr)) run();
  return std::string(id);
}

// An API whose bodies have `input_ids` and `stream`.
constexpr Api kIdsApi = {.name = "ids",
                         .path = "/generate",
                         .id_prefix = "ids-",
                         .fields = {"input_ids", "max_new_tokens", "min_new_tokens"},
                         .needs_tokenizer = false,
                         .parse = nullptr,
                         .format = own_format,
                         .bodies = nullptr,
                         .errors = nullptr,
                         .id_at = id_when_chosen};

// Rank 0 is a router behind an HTTP port. Its engine counts itself as full.
class RankRouterTest : public OtherRank {
 protected:
  void SetUp() override {
    start_all(2);
    engine_.plane = &plane(0);
    engine_.rank_loads.write({{.num_requests = 9, .num_tokens = 900}, {}});
    reply_ = std::make_unique<ReplyService>(ReplyService::Options{
        .engine = &engine_, .outbox = &outbox_, .stream_records = &stream_records_});
    router_ = std::make_unique<RankRouter>(RankRouter::Options{.cluster = &plane(0),
                                                               .engine = &engine_,
                                                               .reply = reply_.get(),
                                                               .stream_records = &stream_records_,
                                                               .routing = RoutingPolicy::shortest,
                                                               .max_forwards = max_forwards_});
    router_->open({.host = "127.0.0.1", .port = 1}, "the-key-of-rank-0");
    engine_.start(outbox_);
    HttpOptions options{.memory_budget = memory_budget_, .error_format_of = errors_of_ranks};
    auto server = HttpServer::create(
        options, [this](HttpRequest&& request, auto exchange) { begin(request, exchange); });
    ASSERT_TRUE(server);
    rank_0_ = *std::move(server);
    start_rank_1();
  }
  void TearDown() override {
    engine_.stop();
    router_->stop();
    reply_->stop();
    rank_0_.reset();
    router_.reset();
    reply_.reset();
    end_rank_1();
  }
  std::string address_of_rank_1() override {
    const Json peer = router_->describe()["peers"][1];
    return peer["address"].is_null() ? "" : peer["address"].get<std::string>();
  }
  void begin(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
    const Json body = Json::parse(request.body);
    GenerationRequest asked;
    asked.api = &kIdsApi;
    asked.stream = body.value("stream", false);
    Prompt& prompt = asked.prompts.emplace_back();
    auto& ids = prompt.input.emplace<std::vector<TokenId>>();
    for (const int id : body["input_ids"]) ids.push_back(TokenId{id});
    prompt.max_tokens = static_cast<int>(max_tokens_);
    auto prepared = prepare_request(std::move(asked), {.info = &engine_.info()}, request.memory);
    HOCKET_CHECK(prepared.has_value());
    failing_allocation = fails_at_;
    try {
      router_->begin(request, exchange, *std::move(prepared), nullptr);
      failing_allocation = 0;
    } catch (...) {
      fail_by_exception(*exchange, "a request");
      ++num_thrown_;
    }
  }
  // Returns a client that has sent a request to rank 0.
  TestClient ask(const Json& body, int receive_buffer = 0) {
    TestClient client(rank_0_->port(), receive_buffer);
    const std::string text = body.dump();
    client.send(fmt::format("POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                            text.size(), text));
    return client;
  }

  size_t max_forwards_ = 1024, max_tokens_ = 4;
  const std::shared_ptr<MemoryBudget> memory_budget_ = MemoryBudget::create({});
  FakeServerEngine engine_;
  Outbox outbox_{1024};
  StreamRecords stream_records_{{.max_bytes = 1 << 20}};
  std::unique_ptr<ReplyService> reply_;
  std::unique_ptr<RankRouter> router_;
  std::unique_ptr<HttpServer> rank_0_;
  std::atomic<int64_t> fails_at_ = 0;  // the allocation of begin() that fails; 0: none
  std::atomic<int> num_thrown_ = 0;    // requests that ended with an exception
};

TEST_F(RankRouterTest, TheRequestGoesAsItCame) {
  TestClient client(rank_0_->port());
  const std::string body = R"({"input_ids" : [1,2],   "sampling_params":{"max_new_tokens":3}})";
  client.send(
      fmt::format("POST /generate HTTP/1.1\r\nHost: x\r\nX-Request-Id: r 7\r\n"
                  "Content-Length: {}\r\n\r\n{}",
                  body.size(), body));
  const ForwardedRequest asked = take();
  EXPECT_EQ(asked.request.method, "POST");
  EXPECT_EQ(asked.request.path, "/generate");
  EXPECT_EQ(asked.request.body, body);
  EXPECT_EQ(asked.request.header("content-type"), "application/json");
  EXPECT_EQ(asked.request.header("x-hocket-via"), "rank 0");
  EXPECT_EQ(asked.request.header("x-request-id"), "r 7");
  EXPECT_NE(asked.request.header(kClientHeader), "");
  asked.exchange->respond(200, "application/json", "{\"a\":  1}", {{"X-What", "this"}});
  const TestAnswer answer = client.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "{\"a\":  1}");
  EXPECT_NE(answer.head.find("X-What: this"), std::string::npos);
  EXPECT_EQ(router_->counts().forwarded[1], 1u);
  EXPECT_EQ(engine_.num_seen(), 0u);
}

// The client gets the same bytes for pieces of any size, in whole events.
TEST_F(RankRouterTest, StreamsAreRelayedByteByByte) {
  std::string events;
  for (int i = 0; i < 300; ++i)
    append_sse(events, fmt::format("{{\"n\":{},\"text\":\"{}\"}}", i, std::string(i % 97, 'x')));
  append_sse(events, kSseDone);
  TestClient client = ask(stream_);
  const ForwardedRequest asked = take();
  ASSERT_TRUE(asked.exchange->start_stream("text/event-stream", {{"Cache-Control", "no-cache"}}));
  for (size_t at = 0; at < events.size(); at += 613) {
    ASSERT_TRUE(asked.exchange->write(std::string_view(events).substr(at, 613)));
    if (at % 7 == 0) std::this_thread::sleep_for(milliseconds(2));
  }
  ASSERT_TRUE(asked.exchange->finish());
  const TestAnswer answer = client.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, events);
  EXPECT_NE(answer.head.find("Content-Type: text/event-stream"), std::string::npos);
  EXPECT_NE(answer.head.find("Cache-Control: no-cache"), std::string::npos);
}

TEST_F(RankRouterTest, ALargeEventIsPassedOn) {
  std::string events;
  append_sse(events, std::string(3 << 20, 'x'));
  append_sse(events, kSseDone);
  TestClient client = ask(stream_);
  const ForwardedRequest asked = take();
  ASSERT_TRUE(asked.exchange->start_stream("text/event-stream"));
  ASSERT_TRUE(asked.exchange->write(events));
  ASSERT_TRUE(asked.exchange->finish());
  const TestAnswer answer = client.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(answer.body == events) << answer.body.size() << " bytes of " << events.size();
  EXPECT_TRUE(eventually([&] { return memory_budget_->held_bytes() == 0; }));
}

TEST_F(RankRouterTest, EventsArriveWhenTheyAreSaid) {
  TestClient client = ask(stream_);
  const ForwardedRequest asked = take();
  asked.exchange->start_stream("text/event-stream");
  for (int i = 0; i < 3; ++i) {
    asked.exchange->write(fmt::format("data: {}\n\n", i));
    EXPECT_TRUE(client.until(fmt::format("data: {}\n\n", i), seconds(3)).second);
  }
  asked.exchange->finish();
}

TEST_F(RankRouterTest, ErrorsOfTheRankAreTheClients) {
  TestClient client = ask(body_);
  const ForwardedRequest asked = take();
  respond_error(*asked.exchange, error(ErrorCode::queue_full, "1024 requests wait"));
  const TestAnswer answer = client.receive();
  EXPECT_EQ(answer.status, 429);
  EXPECT_NE(answer.head.find("Retry-After: 1"), std::string::npos) << answer.head;
  EXPECT_EQ(error_of(answer)["code"], "queue_full");
}

// A rank whose error has a code that is no text is broken, but each request ends all the same.
TEST_F(RankRouterTest, AnErrorWithoutAWordAsItsCodeIsPassedOn) {
  for (const char* const code : {"503", "null", "{}", R"(["shutting_down"])"}) {
    TestClient client = ask(body_);
    const ForwardedRequest asked = take();
    const std::string error = fmt::format(R"({{"error":{{"code":{}}}}})", code);
    ASSERT_TRUE(asked.exchange->respond(503, "application/json", error));
    const TestAnswer answer = client.receive();
    EXPECT_EQ(answer.status, 503) << code;
    EXPECT_EQ(answer.body, error);
    EXPECT_TRUE(eventually([&] { return router_->num_forwards() == 0; })) << code;
  }
}

TEST_F(RankRouterTest, ConnectionsAreUsedAgain) {
  for (int i = 0; i < 20; ++i) {
    TestClient client = ask(body_);
    const ForwardedRequest asked = take();
    asked.exchange->respond(200, "application/json", "{}");
    ASSERT_EQ(client.receive().status, 200);
  }
  EXPECT_EQ(rank_1_->counts().num_accepted_total, 1u);
}

TEST_F(RankRouterTest, AKeptConnectionThatEndedIsReplaced) {
  for (int i = 0; i < 3; ++i) {
    TestClient client = ask(body_);
    const ForwardedRequest asked = take();
    asked.exchange->respond(200, "application/json", "{}");
    ASSERT_EQ(client.receive().status, 200);
    link_->set(TestProxy::Link::cut);
    ASSERT_TRUE(eventually([&] { return rank_1_->counts().num_connections == 0; }));
    link_->set(TestProxy::Link::up);
    std::this_thread::sleep_for(milliseconds(20));  // until the client has noticed it
  }
  EXPECT_EQ(rank_1_->counts().num_accepted_total, 3u);
  EXPECT_EQ(router_->counts().failed[1], 0u);
}

TEST_F(RankRouterTest, AClientThatLeavesIsGoneThereToo) {
  for (const Json& body : {stream_, body_}) {
    TestClient client = ask(body);
    const ForwardedRequest asked = take();
    std::atomic<bool> left = false;
    asked.exchange->on_close([&] { left = true; });
    if (body == stream_) {
      asked.exchange->start_stream("text/event-stream");
      asked.exchange->write("data: 1\n\n");
      ASSERT_TRUE(client.until("data: 1", seconds(3)).second);
    }
    client.close();
    EXPECT_TRUE(eventually([&] { return left.load(); }));
  }
  EXPECT_TRUE(eventually([&] { return router_->num_forwards() == 0; }));
  EXPECT_EQ(router_->counts().failed[1], 0u);
}

TEST_F(RankRouterTest, ASlowClientIsDroppedThereToo) {
  const TestClient client = ask(stream_, 4096);
  const ForwardedRequest asked = take();
  asked.exchange->start_stream("text/event-stream");
  std::atomic<bool> left = false;
  asked.exchange->on_close([&] { left = true; });
  const std::string event = "data: " + std::string(100'000, 'x') + "\n\n";
  int64_t num_bytes = 0;
  while (!left && num_bytes < int64_t{256} << 20) {
    asked.exchange->write(event);
    num_bytes += std::ssize(event);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(left);
  EXPECT_TRUE(eventually([&] { return rank_0_->counts().num_slow_total == 1; }));
}

TEST_F(RankRouterTest, ALostRankIsNeverAsked) {
  planes_[1].reset();
  ASSERT_TRUE(eventually([&] { return !router_->counts().up[1]; }));
  EXPECT_EQ(router_->counts().num_lost, 1u);
  const TestAnswer answer = ask(body_).receive();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(error_of(answer)["code"], "lost_rank");
  EXPECT_THAT(answer.body, testing::HasSubstr("rank 1 (h1)"));
  EXPECT_EQ(engine_.num_seen(), 0u);
}

TEST_F(RankRouterTest, ARankThatShutsDownOrIsNotReachedLeavesItToThisOne) {
  TestClient client = ask(body_);
  const ForwardedRequest asked = take();
  respond_error(*asked.exchange, error(ErrorCode::shutting_down, "the server is shutting down"));
  TestAnswer answer = client.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, kOwnAnswer);
  EXPECT_EQ(engine_.num_seen(), 1u);

  std::this_thread::sleep_for(milliseconds(1100));  // rank 1 is avoided for 1 s after a refusal
  link_.reset();
  rank_1_.reset();
  answer = ask(body_).receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, kOwnAnswer);
  EXPECT_TRUE(eventually([&] { return router_->counts().failed[1] == 2; }));
}

// Its address is forgotten as soon as this rank knows of its new process.
TEST_F(RankRouterTest, ARankMayBeStartedAnewWhileItIsChosen) {
  when_chosen = [&] {
    planes_[1].reset();
    start(1, port_);
    const std::string& boot_id = plane(1).self().boot_id;
    EXPECT_TRUE(eventually([&] {
      const Member other = plane(0).view().members[1];
      return other.identity.boot_id == boot_id && other.state == MemberState::member;
    }));
    std::this_thread::sleep_for(milliseconds(500));
  };
  const TestAnswer answer = ask(body_).receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, kOwnAnswer);
}

TEST_F(RankRouterTest, WhatWasHandedOverCounts) {
  engine_.rank_loads.write({{}, {}});
  std::vector<TestClient> clients;
  const Json body = {{"input_ids", std::vector<int>(40, 7)},
                     {"sampling_params", {{"max_new_tokens", 4}}}};
  for (int i = 0; i < 6; ++i) clients.push_back(ask(body));
  // Rank 1 reports no other load, so after the first request it counts as the longer queue.
  EXPECT_TRUE(eventually([&] { return engine_.num_seen() == 5; }));
  EXPECT_EQ(router_->counts().forwarded[1], 1u);
  // Rank 1 reports another load, so that load includes the forwarded request.
  std::this_thread::sleep_for(milliseconds(30));
  engine_.rank_loads.write({{.num_requests = 1, .num_tokens = 30}, {.num_tokens = 1}});
  clients.push_back(ask(body));
  EXPECT_TRUE(eventually([&] { return router_->counts().forwarded[1] == 2; }));
}

class FullRouterTest : public RankRouterTest {
 protected:
  FullRouterTest() { max_forwards_ = 1; }
};

// This rank computes, since the other one has as many requests as it may have.
TEST_F(FullRouterTest, StreamsAreKept) {
  TestClient forwarded = ask(body_);
  const ForwardedRequest asked = take();
  engine_.rank_loads.write({{}, {.num_requests = 9, .num_tokens = 900}});
  engine_.pace_us = 20'000;
  max_tokens_ = 400;
  engine_.script = [](const RequestInput&) { return std::vector(500, TokenId{300}); };
  TestClient client = ask(stream_);
  const auto has_news = [&] {
    std::lock_guard lock(mutex_);
    return std::exchange(changes_, "").find(" live 0:") != std::string::npos;
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(eventually(has_news)) << i;
  std::lock_guard lock(mutex_);
  EXPECT_EQ(kept_.size(), 1u) << "it was sent whole once";
}

// Whichever allocation fails, the client gets an error, and no call is left that nobody would end.
TEST_F(RankRouterTest, WithoutMemoryNoCallBegins) {
  log::set_level(log::Level::off);
  int num_failures = 0;
  for (;; ++num_failures) {
    ASSERT_LT(num_failures, 1000);
    fails_at_ = num_failures + 1;
    TestClient client = ask(stream_);
    ASSERT_TRUE(eventually([&] { return num_thrown_ > num_failures || num_held() > 0; }));
    if (num_thrown_ == num_failures) {  // `client` must live: its call ends with it
      EXPECT_EQ(router_->num_forwards(), 1u);
      break;
    }
    EXPECT_EQ(client.receive().status, 503) << num_failures;
    EXPECT_EQ(num_held(), 0u) << num_failures;
    EXPECT_EQ(router_->num_forwards(), 0u) << num_failures;
    EXPECT_EQ(stream_records_.counts().num_records, 0u) << num_failures;
  }
  EXPECT_GT(num_failures, 10);
  EXPECT_EQ(router_->counts().forwarded[1], 1u);
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
