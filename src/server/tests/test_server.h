// A whole server on a free port around a fake engine, for tests: the real tokenizer and template
// of the bundled model, and answers that the test chooses.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/source_dir_testing.h"
#include "server/http/client_testing.h"
#include "server/http/json_body.h"
#include "server/http/sse.h"
#include "server/reply/fake_engine_testing.h"
#include "server/server.h"

namespace hocket {

struct BundledText {
  Tokenizer tokenizer;
  ChatTemplate chat_template;
};
inline const BundledText& bundled_text() {
  static const BundledText text = [] {
    const std::string dir = source_dir() / "models/hocket-tiny-qwen3-moe";
    auto tokenizer = Tokenizer::load(dir);
    HOCKET_CHECK(tokenizer.has_value());
    auto chat = ChatTemplate::load(dir, *tokenizer);
    HOCKET_CHECK((chat.has_value() && chat->has_value()));
    return BundledText{*std::move(tokenizer), **std::move(chat)};
  }();
  return text;
}

// The contents of a stream: its blocks, without the closing [DONE].
struct Events {
  int status = 0;
  std::vector<Json> blocks;
  bool done = false;
};

class TestServer {
 public:
  enum class Text { bundled, none };
  explicit TestServer(Text text = Text::bundled, ServerSettings settings = {},
                      ControlPlane* cluster = nullptr,
                      Duration probe_interval = RankProbes::kInterval) {
    settings.http.port = 0;
    if (settings.http.allowed_hosts.empty()) settings.http.allowed_hosts = "x";
    engine.plane = cluster;
    if (settings.memory.max_running_requests > 0)
      engine.info_.max_running_requests = settings.memory.max_running_requests;
    if (settings.scheduler.kv_events) {
      engine.info_.page_tokens = 2;
      engine.events.emplace(64);
    }
    Server::Options options{.settings = settings, .engine = &engine};
    options.rank_probe_interval = probe_interval;
    if (text == Text::bundled) {
      options.tokenizer = &bundled_text().tokenizer;
      options.chat_template = &bundled_text().chat_template;
    }
    auto created = Server::create(std::move(options));
    HOCKET_CHECK(created.has_value());
    server = *std::move(created);
  }

  static std::string request_text(std::string_view method, std::string_view path,
                                  std::string_view body) {
    return fmt::format("{} {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", method, path,
                       body.size(), body);
  }
  TestAnswer ask(std::string_view method, std::string_view path, std::string_view body = {}) {
    TestClient client(server->port());
    client.send(request_text(method, path, body));
    return client.receive();
  }
  // Sends a POST; the answer must be JSON.
  Json post(std::string_view path, const Json& body, int want_status = 200) {
    const TestAnswer answer = ask("POST", path, body.dump());
    EXPECT_EQ(answer.status, want_status) << answer.body;
    return Json::parse(answer.body, nullptr, false);
  }
  Json get(std::string_view path, int want_status = 200) {
    const TestAnswer answer = ask("GET", path);
    EXPECT_EQ(answer.status, want_status) << answer.body;
    return Json::parse(answer.body, nullptr, false);
  }
  // Returns the value of the metric whose line has `what`; -1 without such a line.
  int metric(std::string_view what) {
    const std::string text = ask("GET", "/metrics").body;
    const size_t at = text.find(what);
    return at == text.npos ? -1 : std::atoi(text.c_str() + text.find("} ", at) + 2);
  }
  Events stream(std::string_view path, Json body) {
    body["stream"] = true;
    const TestAnswer answer = ask("POST", path, body.dump());
    Events events{answer.status, {}, false};
    SseReader reader;
    for (const std::string& data : reader.feed(answer.body)) {
      if (data == kSseDone)
        events.done = true;
      else
        events.blocks.push_back(Json::parse(data, nullptr, false));
    }
    return events;
  }

  FakeServerEngine engine;
  std::unique_ptr<Server> server;
};

inline std::vector<TokenId> ids_of(std::string_view text) {
  return bundled_text().tokenizer.encode(text, {.add_special_tokens = false}).value();
}

inline const char* const kSentence = "The capital of France is Paris. It has 2 rivers – né? 你好!";

inline Json chat_body() {
  return {{"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}};
}

// Returns the text of one choice of a stream. chat_or_text: "delta" for chat, "text" for
// completions.
inline std::string joined(const Events& events, int choice, const char* chat_or_text) {
  std::string text;
  for (const Json& block : events.blocks)
    for (const Json& c : block["choices"]) {
      if (c["index"] != choice) continue;
      const Json& holder = std::string_view(chat_or_text) == "delta" ? c["delta"] : c;
      text += holder.value(std::string_view(chat_or_text) == "delta" ? "content" : "text", "");
    }
  return text;
}

// Makes `text` the answer to every request.
inline void say(TestServer& server, std::string_view text) {
  server.engine.script = [ids = ids_of(text)](const RequestInput&) { return ids; };
}

// Waits until `condition` holds, which another thread makes true. Returns false after `patience`.
template <class Condition>
bool eventually(Condition condition, Duration patience = std::chrono::seconds(3)) {
  const TimePoint deadline = RealClock().now() + patience;
  while (!condition()) {
    if (RealClock().now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace hocket
