// Spans of requests as a collector receives them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "server/apis/apis.h"
#include "server/observe/span_sender.h"
#include "server/observe/trace_context_testing.h"
#include "server/tests/test_server.h"

namespace hocket {
namespace {

using testing::HasSubstr;

Json short_body() {
  return {{"messages", Json::array({{{"role", "user"}, {"content", "quince marmalade"}}})},
          {"temperature", 0.5},
          {"max_tokens", 40}};
}

// A fake collector that accepts or refuses spans.
class TestCollector {
 public:
  explicit TestCollector(int status = 200) {
    auto made = HttpServer::create(
        {.error_format_of = error_format_of}, [this, status](HttpRequest&& request, auto exchange) {
          {
            std::lock_guard lock(mutex_);
            ++num_calls_;
            if (status == 200) bodies_.push_back(Json::parse(request.body, nullptr, false));
            type_ = request.header("content-type");
          }
          exchange->respond(status, "application/json", "{}");
        });
    HOCKET_CHECK(made.has_value());
    server_ = *std::move(made);
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}/v1/traces", server_->port()); }
  int num_calls() const {
    std::lock_guard lock(mutex_);
    return num_calls_;
  }
  std::string type() const {
    std::lock_guard lock(mutex_);
    return type_;
  }
  // Returns the spans by name; equal names in order.
  std::multimap<std::string, Json> spans() const {
    std::lock_guard lock(mutex_);
    std::multimap<std::string, Json> all;
    for (const Json& body : bodies_)
      for (const Json& resource : body["resourceSpans"])
        for (const Json& scope : resource["scopeSpans"])
          for (const Json& span : scope["spans"]) all.emplace(span["name"], span);
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Json> bodies_;
  int num_calls_ = 0;
  std::string type_;
  std::unique_ptr<HttpServer> server_;
};

ServerSettings traced(const TestCollector& collector) {
  ServerSettings settings;
  settings.observe.enable_trace = true;
  settings.observe.otlp_traces_endpoint = collector.url();
  return settings;
}

TestAnswer post_under(TestServer& server, std::string_view traceparent) {
  const std::string body = short_body().dump();
  TestClient client(server.server->port());
  client.send(
      fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\ntraceparent: {}\r\n"
                  "Content-Length: {}\r\n\r\n{}",
                  traceparent, body.size(), body));
  return client.receive();
}

TEST(Traces, ARequestIsASpanWithItsStagesBelow) {
  TestCollector collector;
  {
    TestServer server(TestServer::Text::bundled, traced(collector));
    say(server, "Paris");
    EXPECT_EQ(post_under(server, kSampledTraceparent).status, 200);
  }
  const auto spans = collector.spans();
  ASSERT_EQ(spans.count("POST /v1/chat/completions"), 1u);
  const Json root = spans.find("POST /v1/chat/completions")->second;
  EXPECT_EQ(root["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(root["parentSpanId"], "00f067aa0ba902b7");
  EXPECT_EQ(root["kind"], 2);
  EXPECT_EQ(collector.type(), "application/json");
  for (const char* stage : {"text", "queue", "prefill", "decode"}) {
    ASSERT_EQ(spans.count(stage), 1u) << stage;
    const Json& span = spans.find(stage)->second;
    EXPECT_EQ(span["traceId"], root["traceId"]);
    EXPECT_EQ(span["parentSpanId"], root["spanId"]);
    EXPECT_LE(std::stoll(span["startTimeUnixNano"].get<std::string>()),
              std::stoll(span["endTimeUnixNano"].get<std::string>()));
    EXPECT_GE(std::stoll(span["startTimeUnixNano"].get<std::string>()),
              std::stoll(root["startTimeUnixNano"].get<std::string>()));
  }
  EXPECT_THAT(root.dump(),
              HasSubstr(R"({"key":"gen_ai.usage.output_tokens","value":{"intValue":)"));
  EXPECT_THAT(root.dump(),
              HasSubstr(R"({"key":"gen_ai.operation.name","value":{"stringValue":"chat"}})"));
  EXPECT_THAT(root.dump(), Not(HasSubstr("quince")));
}

// The traceparent says that the trace is not sampled, so no span is sent.
TEST(Traces, WhoDoesNotWantSpansGetsNone) {
  TestCollector collector;
  {
    TestServer server(TestServer::Text::bundled, traced(collector));
    post_under(server, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
  }
  EXPECT_EQ(collector.num_calls(), 0);
}

TEST(Traces, AFailureIsMarkedAndItsTraceBeginsHere) {
  TestCollector collector;
  {
    TestServer server(TestServer::Text::bundled, traced(collector));
    server.engine.late_error = error(ErrorCode::bad_logits, "not finite");
    server.post("/v1/chat/completions", short_body(), 500);
  }
  const auto spans = collector.spans();
  ASSERT_EQ(spans.count("POST /v1/chat/completions"), 1u);
  const Json& root = spans.find("POST /v1/chat/completions")->second;
  EXPECT_FALSE(root.contains("parentSpanId"));
  EXPECT_EQ(root["status"]["code"], 2);
  EXPECT_THAT(root.dump(), HasSubstr("bad_logits"));
}

TEST(Traces, WhatACollectorRefusesIsCountedAsLost) {
  TestCollector collector(400);
  TestServer server(TestServer::Text::bundled, traced(collector));
  server.post("/v1/chat/completions", short_body());
  ASSERT_TRUE(eventually([&] {
    return server.ask("GET", "/metrics").body.find("trace_spans_total") != std::string::npos &&
           collector.num_calls() > 0;
  }));
  ASSERT_TRUE(eventually([&] {
    const std::string text = server.ask("GET", "/metrics").body;
    return text.contains("hocket:trace_spans_total{model_name=\"tiny\",outcome=\"lost\"} 5");
  }));
  EXPECT_EQ(collector.num_calls(), 1) << "400 is final";
}

TEST(Traces, ACollectorThatIsAwayHoldsUpNothing) {
  ServerSettings settings;
  settings.observe.enable_trace = true;
  settings.observe.otlp_traces_endpoint = "http://127.0.0.1:1/v1/traces";
  const TimePoint begin = RealClock().now();
  {
    TestServer server(TestServer::Text::bundled, settings);
    for (int i = 0; i < 20; ++i) server.post("/v1/chat/completions", short_body());
  }
  EXPECT_LT(RealClock().now() - begin, std::chrono::seconds(10));
}

TEST(Collector, IsNamedByAUrl) {
  const auto named = parse_collector("http://otel:9999/x/y");
  ASSERT_TRUE(named);
  EXPECT_EQ(named->address, (HostPort{"otel", 9999}));
  EXPECT_EQ(named->path, "/x/y");
  EXPECT_EQ(parse_collector("localhost")->address.port, 4318);
  EXPECT_EQ(parse_collector("http://[::1]")->address.host, "::1");
  EXPECT_EQ(parse_collector("http://localhost:4318/")->path, "/v1/traces");
  for (const char* url : {"", "http://", "https://x/v1/traces", "grpc://x:4317", "x:4317", "x:y"})
    EXPECT_EQ(parse_collector(url).error().param, "otlp-traces-endpoint") << url;
}

}  // namespace
}  // namespace hocket
