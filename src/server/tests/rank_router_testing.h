// The router of one rank and another rank, whose answers the test gives. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/check.h"
#include "cluster/test_ranks.h"
#include "server/access/access_check.h"
#include "server/apis/apis.h"
#include "server/ranks/keeper_paths.h"
#include "server/ranks/rank_router.h"
#include "server/tests/test_server.h"

namespace hocket {

inline constexpr const char* kKeyOfRank1 = "the-key-of-rank-1";

// Rank 0 is a whole server that counts itself as full; rank 1 is a port behind a link that can
// fail.
class ForwardingRank : public Ranks {
 protected:
  struct ForwardedRequest {
    HttpRequest request;
    std::shared_ptr<HttpExchange> exchange;
  };

  void SetUp() override {
    start_all(2);
    settings_.parallel.dp_routing = "shortest";
    rank_0_ = std::make_unique<TestServer>(TestServer::Text::bundled, settings_, &plane(0));
    rank_0_->engine.rank_loads.write({{.num_requests = 9, .num_tokens = 900}, {}});
    say(*rank_0_, "here");
    start_rank_1();
  }
  void TearDown() override {
    rank_0_.reset();
    {
      std::lock_guard lock(mutex_);
      held_.clear();
    }
    rank_1_.reset();
  }
  void start_rank_1() {
    HttpOptions options{.error_format_of = error_format_of};
    options.admit = [](const HttpRequest& head) { return admit_rank(head, kKeyOfRank1); };
    auto server = HttpServer::create(options, [this](HttpRequest&& request, auto exchange) {
      if (request.path == kKeepPath || request.path == kChangesPath) {
        const std::string answer = note(std::move(request));
        exchange->respond(200, kJsonType, answer);
        return;
      }
      std::lock_guard lock(mutex_);
      held_.push_back({std::move(request), std::move(exchange)});
      news_.notify_all();
    });
    ASSERT_TRUE(server);
    rank_1_ = *std::move(server);
    link_ = std::make_unique<TestProxy>(static_cast<uint16_t>(rank_1_->port()));
    publish(link_->port());
  }
  // Notes what rank 0 tells of its streams, and returns the answer.
  std::string note(HttpRequest request) {
    std::lock_guard lock(mutex_);
    if (request.path == kChangesPath) {
      changes_ += request.body;
      return std::exchange(answer_to_changes_, "{}");
    }
    kept_.push_back(std::move(request));
    return "{}";
  }
  // Publishes this port as rank 1's and waits until rank 0 knows it.
  void publish(uint16_t port) {
    const std::string place = fmt::format("127.0.0.1:{}", port);
    ASSERT_TRUE(plane(1).set("http/1",
                             fmt::format("{} {} {}", plane(1).self().boot_id, place, kKeyOfRank1)));
    ASSERT_TRUE(eventually([&] { return address_of_rank_1() == place; }));
  }
  std::string address_of_rank_1() {
    const Json peer = rank_0_->get("/get_server_info")["peers"][1];
    return peer["address"].is_null() ? "" : peer["address"].get<std::string>();
  }
  // Returns a client that has sent a request to rank 0.
  TestClient ask(const Json& body, const char* path = "/generate", int receive_buffer = 0) {
    TestClient client(rank_0_->server->port(), receive_buffer);
    client.send(TestServer::request_text("POST", path, body.dump()));
    return client;
  }
  // Returns the request that rank 0 forwarded to rank 1; stops the test after 5 s without one.
  ForwardedRequest take() {
    std::unique_lock lock(mutex_);
    const bool came = news_.wait_for(lock, std::chrono::seconds(5), [&] { return !held_.empty(); });
    HOCKET_CHECK(came);
    ForwardedRequest asked = std::move(held_.front());
    held_.pop_front();
    return asked;
  }
  static Json error_of(const TestAnswer& answer) {
    return Json::parse(answer.body, nullptr, false)["error"];
  }
  uint64_t metric(std::string_view name) {
    const std::string text = rank_0_->ask("GET", "/metrics").body;
    const size_t at = text.find(fmt::format("\nhocket:{}{{", name));
    return at == std::string::npos
               ? 0
               : static_cast<uint64_t>(std::atoll(text.c_str() + text.find("} ", at) + 2));
  }

  ServerSettings settings_;  // those of rank 0
  const Json body_ = {{"input_ids", {5, 6, 7}}, {"sampling_params", {{"max_new_tokens", 4}}}};
  const Json stream_ = {{"input_ids", {5, 6, 7}}, {"stream", true}};
  std::unique_ptr<TestServer> rank_0_;
  std::unique_ptr<HttpServer> rank_1_;
  std::unique_ptr<TestProxy> link_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<ForwardedRequest> held_;
  std::vector<HttpRequest> kept_;         // streams of rank 0 that rank 1 shall keep
  std::string changes_;                   // lines that rank 0 sent about these streams
  std::string answer_to_changes_ = "{}";  // to the next of them
};

}  // namespace hocket
