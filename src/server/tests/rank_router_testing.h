// The router of one rank and another rank, whose answers the test gives. Tests only.
#pragma once

#include <memory>
#include <string>

#include "server/ranks/other_rank_testing.h"
#include "server/tests/test_server.h"

namespace hocket {

// Rank 0 is a whole server that counts itself as full.
class ForwardingRank : public OtherRank {
 protected:
  void SetUp() override {
    start_all(2);
    settings_.parallel.dp_routing = "shortest";
    rank_0_ = std::make_unique<TestServer>(TestServer::Text::bundled, settings_, &plane(0),
                                           probe_interval_);
    rank_0_->engine.rank_loads.write({{.num_requests = 9, .num_tokens = 900}, {}});
    say(*rank_0_, "here");
    start_rank_1();
  }
  void TearDown() override {
    rank_0_.reset();
    end_rank_1();
  }
  std::string address_of_rank_1() override {
    const Json peer = rank_0_->get("/get_server_info")["peers"][1];
    return peer["address"].is_null() ? "" : peer["address"].get<std::string>();
  }
  // Returns a client that has sent a request to rank 0.
  TestClient ask(const Json& body, const char* path = "/generate", int receive_buffer = 0) {
    TestClient client(rank_0_->server->port(), receive_buffer);
    client.send(TestServer::request_text("POST", path, body.dump()));
    return client;
  }
  uint64_t metric(std::string_view name) {
    const std::string text = rank_0_->ask("GET", "/metrics").body;
    const size_t at = text.find(fmt::format("\nhocket:{}{{", name));
    return at == std::string::npos
               ? 0
               : static_cast<uint64_t>(std::atoll(text.c_str() + text.find("} ", at) + 2));
  }

  ServerSettings settings_;  // those of rank 0
  Duration probe_interval_ = RankProbes::kInterval;
  std::unique_ptr<TestServer> rank_0_;
};

}  // namespace hocket
