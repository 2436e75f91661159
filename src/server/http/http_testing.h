// Starts a server on a free port, for tests of the wire.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "server/http/client_testing.h"
#include "server/http/error_map.h"
#include "server/http/http.h"
#include "server/http/sse.h"

namespace hocket {

// The server answers /echo at once and hands every other exchange to the test.
class HttpTest : public testing::Test {
 protected:
  // Errors are their code, message and fix. Those of paths that begin with /named are events with a
  // name.
  static const ErrorFormat& errors_of(std::string_view path) {
    static constexpr auto kBody = [](const Error& e) {
      return fmt::format("{}: {}; {}", error_slug(e.code), e.message, e.fix);
    };
    static constexpr ErrorFormat kUnnamed = {kBody, [](const Error& e) {
                                               std::string out;
                                               append_sse(out, kBody(e));
                                               append_sse(out, kSseDone);
                                               return out;
                                             }};
    static constexpr ErrorFormat kNamed = {kBody, [](const Error& e) {
                                             std::string out;
                                             append_sse_event(out, "error", kBody(e));
                                             return out;
                                           }};
    return path.starts_with("/named") ? kNamed : kUnnamed;
  }

  void start(HttpOptions options = {}) {
    options.error_format_of = errors_of;
    options.on_status = [this](int status) {
      std::lock_guard lock(mutex_);
      statuses_.push_back(status);
      news_.notify_all();
    };
    auto server = HttpServer::create(std::move(options), [this](HttpRequest&& r, auto exchange) {
      if (r.path == "/echo") {
        exchange->respond(200, "text/plain",
                          r.method + " " + r.path + "?" + r.query + " " + r.body);
        return;
      }
      std::lock_guard lock(mutex_);
      held_.push_back(std::move(exchange));
      news_.notify_all();
    });
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
  }
  ~HttpTest() override {
    held_.clear();
    server_.reset();
  }
  TestClient client(int receive_buffer_bytes = 0) {
    return TestClient(server_->port(), receive_buffer_bytes);
  }
  // Returns the oldest exchange that reached the handler; null after 5 s.
  std::shared_ptr<HttpExchange> take() {
    std::unique_lock lock(mutex_);
    if (!news_.wait_for(lock, std::chrono::seconds(5), [&] { return !held_.empty(); }))
      return nullptr;
    auto exchange = std::move(held_.front());
    held_.pop_front();
    return exchange;
  }
  bool saw_status(int status) {
    std::unique_lock lock(mutex_);
    return news_.wait_for(lock, std::chrono::seconds(5),
                          [&] { return std::ranges::count(statuses_, status) > 0; });
  }
  static std::string get(std::string_view target, std::string_view headers = "") {
    return fmt::format("GET {} HTTP/1.1\r\nHost: here\r\n{}\r\n", target, headers);
  }
  static std::string post(std::string_view target, std::string_view body,
                          std::string_view headers = "") {
    return fmt::format("POST {} HTTP/1.1\r\nHost: here\r\n{}Content-Length: {}\r\n\r\n{}", target,
                       headers, body.size(), body);
  }

  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::shared_ptr<HttpExchange>> held_;
  std::vector<int> statuses_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace hocket
