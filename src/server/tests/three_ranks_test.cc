// Three whole servers as the ranks of one service, with fake models: rank 1 is asked, and rank 2
// computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "cluster/ranks_testing.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

class ThreeRanks : public Ranks {
 protected:
  void serve_all(int tolerate_ranks) {
    tolerate_ranks_ = tolerate_ranks;
    start_all(3);
    for (int rank = 0; rank < 3; ++rank) {
      ServerSettings settings;
      settings.parallel.dp_routing = "shortest";
      settings.parallel.tolerate_ranks = tolerate_ranks;
      servers_.push_back(
          std::make_unique<TestServer>(TestServer::Text::bundled, settings, &plane(rank)));
      const RankLoad full{.num_requests = 9, .num_tokens = 900};
      server(rank).engine.rank_loads.write({full, full, {}});
      server(rank).engine.script = [](const RequestInput&) {
        std::vector<TokenId> tokens;
        for (int i = 0; i < 80; ++i) tokens.push_back(TokenId{300 + i});
        return tokens;
      };
    }
    for (int rank = 0; rank < 3; ++rank)
      for (int peer = 0; peer < 3; ++peer)
        ASSERT_TRUE(
            eventually([&] { return peer == rank || !peer_of(rank, peer)["address"].is_null(); }));
  }
  void TearDown() override { servers_.clear(); }
  TestServer& server(int rank) { return *servers_[static_cast<size_t>(rank)]; }
  Json peer_of(int rank, int peer) {
    return server(rank).get("/get_server_info")["peers"][static_cast<size_t>(peer)];
  }
  // Begins a stream that lasts until finish(), and reads some of its events.
  void begin() {
    server(2).engine.pace_us = 100'000;
    client_ = std::make_unique<TestClient>(server(1).server->port());
    const std::string body = R"({"prompt":"x","stream":true,"max_tokens":80})";
    client_->send(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Hocket-Event-Ids: true\r\n"
                    "Content-Length: {}\r\n\r\n{}",
                    body.size(), body));
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(client_->until("\nid: ", seconds(5)).second);
      const auto [line, came] = client_->until("\n", seconds(5));
      ASSERT_TRUE(came);
      event_id_ = line.substr(0, line.find_first_of("\r\n"));
    }
    ASSERT_EQ(server(2).engine.num_seen(), 1u) << "rank 2 computes";
  }
  // Returns the rest of the stream.
  std::string finish() {
    server(2).engine.pace_us = 1;
    const auto [rest, is_whole] = client_->until("data: [DONE]\n\n", seconds(5));
    EXPECT_TRUE(is_whole) << rest;
    return rest;
  }
  // Comes back to the stream through rank 0, behind the event with this id; empty: from the start.
  TestAnswer come_back(const std::string& last) {
    TestClient client(server(0).server->port());
    client.send(fmt::format("GET /v1/streams/{} HTTP/1.1\r\nHost: x\r\n{}\r\n",
                            event_id_.substr(0, event_id_.find(':')),
                            last.empty() ? "" : "Last-Event-ID: " + last + "\r\n"));
    return client.receive();
  }

  static std::string without_times(const std::string& stream) {
    return std::regex_replace(stream, std::regex(R"("timings":\{[^}]*\})"), "T");
  }

  std::vector<std::unique_ptr<TestServer>> servers_;
  std::unique_ptr<TestClient> client_;
  std::string event_id_;  // that of the last event that the client has
};

TEST_F(ThreeRanks, AStreamOutlivesBothRanksThatHadIt) {
  ASSERT_NO_FATAL_FAILURE(serve_all(2));
  ASSERT_NO_FATAL_FAILURE(begin());
  servers_[1].reset();
  servers_[2].reset();
  const TestAnswer rest = come_back(event_id_), whole = come_back("");
  ASSERT_EQ(rest.status, 200) << rest.body;
  ASSERT_EQ(whole.status, 200) << whole.body;
  const size_t at = whole.body.find("\nid: " + event_id_ + "\n\n");
  ASSERT_NE(at, std::string::npos) << event_id_ << " in " << whole.body;
  EXPECT_EQ(without_times(rest.body), without_times(whole.body.substr(at + event_id_.size() + 7)));
  EXPECT_THAT(rest.body, testing::EndsWith("data: [DONE]\n\n"));
}

// One rank may be missing, so two have the record of each stream.
TEST_F(ThreeRanks, WithOneToleratedNoThirdRankHasAForwardedStream) {
  ASSERT_NO_FATAL_FAILURE(serve_all(1));
  ASSERT_NO_FATAL_FAILURE(begin());
  servers_[1].reset();
  servers_[2].reset();
  const TestAnswer answer = come_back(event_id_);
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("not all ranks answered"));
}

TEST_F(ThreeRanks, AWrongPlaceDoesNotEndTheStreamOfAnotherRank) {
  ASSERT_NO_FATAL_FAILURE(serve_all(1));  // so rank 0 has no copy
  ASSERT_NO_FATAL_FAILURE(begin());
  EXPECT_EQ(come_back(event_id_ + ",5").status, 400);
  EXPECT_THAT(finish(), Not(HasSubstr("taken_over")));
}

TEST_F(ThreeRanks, ALostCoordinatorLosesNoStreamOfAnotherRank) {
  ASSERT_NO_FATAL_FAILURE(serve_all(0));
  ASSERT_NO_FATAL_FAILURE(begin());
  servers_[0].reset();
  planes_[0].reset();
  ASSERT_TRUE(eventually([&] { return peer_of(1, 0)["there"] == false; }));
  EXPECT_THAT(finish(), Not(HasSubstr("error")));
  EXPECT_EQ(server(1).engine.num_seen(), 0u) << "rank 1 has computed it anew";
}

}  // namespace
}  // namespace hocket
