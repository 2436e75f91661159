// The other rank of two, whose answers the test gives. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "cluster/proxy_testing.h"
#include "cluster/ranks_testing.h"
#include "server/access/access_check.h"
#include "server/http/client_testing.h"
#include "server/http/error_map.h"
#include "server/http/json_body.h"
#include "server/ranks/keeper_paths.h"

namespace hocket {

inline constexpr const char* kKeyOfRank1 = "the-key-of-rank-1";

// Rank 1 is a port behind a link that can fail. The fixtures that derive from this make rank 0.
class OtherRank : public Ranks {
 protected:
  struct ForwardedRequest {
    HttpRequest request;
    std::shared_ptr<HttpExchange> exchange;
  };

  // Returns the address at which rank 0 reaches rank 1; empty: it knows none.
  virtual std::string address_of_rank_1() = 0;

  void start_rank_1() {
    HttpOptions options{.error_format_of = errors_of_ranks};
    options.admit = [](const HttpRequest& head) { return admit_rank(head, kKeyOfRank1); };
    auto server = HttpServer::create(options, [this](HttpRequest&& request, auto exchange) {
      if (request.path == kKeepPath || request.path == kChangesPath) {
        const std::string answer = note(std::move(request));
        exchange->respond(200, kJsonType, answer);
        return;
      }
      if (request.path == "/livez") {
        ++num_probes_;
        exchange->respond(200, kJsonType, "{}");
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
  void end_rank_1() {
    {
      std::lock_guard lock(mutex_);
      held_.clear();
    }
    rank_1_.reset();
  }
  // Notes what rank 0 reports of its streams, and returns the answer.
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
  // Returns the request that rank 0 forwarded to rank 1; stops the test after 5 s without one.
  ForwardedRequest take() {
    std::unique_lock lock(mutex_);
    const bool came = news_.wait_for(lock, std::chrono::seconds(5), [&] { return !held_.empty(); });
    HOCKET_CHECK(came);
    ForwardedRequest asked = std::move(held_.front());
    held_.pop_front();
    return asked;
  }
  size_t num_held() {
    std::lock_guard lock(mutex_);
    return held_.size();
  }
  // A format of errors with the code that ranks read.
  static const ErrorFormat& errors_of_ranks(std::string_view) {
    static constexpr ErrorFormat kFormat = {
        [](const Error& e) {
          return to_text({{"error", {{"code", error_slug(e.code)}, {"message", e.message}}}});
        },
        [](const Error& e) { return fmt::format("data: {}\n\n", error_slug(e.code)); }};
    return kFormat;
  }
  static Json error_of(const TestAnswer& answer) {
    return Json::parse(answer.body, nullptr, false)["error"];
  }

  std::atomic<int> num_probes_ = 0;  // those that rank 1 got
  const Json body_ = {{"input_ids", {5, 6, 7}}, {"sampling_params", {{"max_new_tokens", 4}}}};
  const Json stream_ = {{"input_ids", {5, 6, 7}}, {"stream", true}};
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
