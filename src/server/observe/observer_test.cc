// The server with somebody who wants to know: what the log says, what the dump holds, which spans
// a collector gets.
#include "server/observe/observer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "server/test_server.h"

namespace hocket {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSecret = "quince marmalade";

Json secret_body() {
  return {{"messages", Json::array({{{"role", "user"}, {"content", kSecret}}})},
          {"temperature", 0.5},
          {"max_tokens", 40}};
}

// What a server with these settings logs while `use` uses it.
template <class Use>
std::string logged(const ObserveSettings& observe, Use&& use) {
  ServerSettings settings;
  settings.observe = observe;
  testing::internal::CaptureStderr();
  {
    TestServer server(TestServer::Text::bundled, settings);
    say(server, "Paris");
    use(server);
    server.server->drain(std::chrono::seconds(5));
  }
  return testing::internal::GetCapturedStderr();
}

TEST(RequestLog, IsSilentUnlessAskedFor) {
  const std::string text =
      logged({}, [](TestServer& s) { s.post("/v1/chat/completions", secret_body()); });
  EXPECT_THAT(text, Not(HasSubstr("request_")));
}

TEST(RequestLog, TellsLengthsTimesAndSamplingAndNoPrompt) {
  const std::string text = logged(
      {.log_requests = true}, [](TestServer& s) { s.post("/v1/chat/completions", secret_body()); });
  EXPECT_THAT(text, HasSubstr("request_began id=chatcmpl-"));
  EXPECT_THAT(text, HasSubstr("path=/v1/chat/completions who=anonymous stream=false prompts=1"));
  EXPECT_THAT(text, HasSubstr("max_tokens=40 temperature=0.5"));
  EXPECT_THAT(text, HasSubstr("request_ended id=chatcmpl-"));
  EXPECT_THAT(text, HasSubstr("status=200 finish=stop"));
  EXPECT_THAT(text, Not(HasSubstr("quince")));
  EXPECT_THAT(text, Not(HasSubstr("Paris")));
}

TEST(RequestLog, LevelZeroLeavesSamplingOut) {
  const std::string text =
      logged({.log_requests = true, .log_requests_level = 0},
             [](TestServer& s) { s.post("/v1/chat/completions", secret_body()); });
  EXPECT_THAT(text, HasSubstr("request_ended"));
  EXPECT_THAT(text, Not(HasSubstr("temperature")));
}

TEST(RequestLog, TextsComeOnlyWhenAskedForAndThatIsAnnounced) {
  const std::string text =
      logged({.log_requests = true, .log_requests_level = 3},
             [](TestServer& s) { s.post("/v1/chat/completions", secret_body()); });
  EXPECT_THAT(text, HasSubstr("prompts and answers are logged"));
  EXPECT_THAT(text, testing::ContainsRegex("request_prompt id=[^\n]*quince marmalade"));
  EXPECT_THAT(text, testing::ContainsRegex("request_answer id=[^\n]*text=Paris"));
}

TEST(RequestLog, RefusalsAreToldWithoutWhatTheySayOfTheBody) {
  Json wrong = secret_body();
  wrong["temperature"] = 9;
  const std::string text = logged({.log_requests = true}, [&](TestServer& s) {
    s.post("/v1/chat/completions", wrong, 400);
    s.ask("POST", "/v1/chat/completions", "{\"quince");
    s.generator.refusal = error(ErrorCode::queue_full, "full");
    s.post("/v1/chat/completions", secret_body(), 429);
  });
  EXPECT_THAT(text, HasSubstr("status=400 code=invalid_request"));
  EXPECT_THAT(text, HasSubstr("param=temperature"));
  EXPECT_THAT(text, HasSubstr("status=429 code=queue_full"));
  EXPECT_THAT(text, Not(HasSubstr("quince")));
}

TEST(RequestLog, AClientThatLeavesIs499) {
  const std::string text = logged({.log_requests = true}, [](TestServer& s) {
    s.generator.pace_us = 20000;
    s.generator.script = [](const RequestInput&) { return ids_of(kSaying); };
    {
      TestClient client(s.server->port());
      client.send(TestServer::request_text("POST", "/v1/chat/completions", secret_body().dump()));
      ASSERT_TRUE(eventually([&] { return s.generator.num_running() == 1; }));
    }
    ASSERT_TRUE(eventually([&] { return s.generator.num_running() == 0; }));
  });
  EXPECT_THAT(text, HasSubstr("status=499 code=client_left finish=abort"));
}

TEST(ConfigureLogging, ChangesWhatIsLoggedFromThenOn) {
  const std::string text = logged({}, [](TestServer& s) {
    const Json told =
        s.post("/configure_logging", {{"log_requests", true}, {"log_requests_level", 0}});
    EXPECT_EQ(told["log_requests"], true);
    EXPECT_EQ(told["log_requests_level"], 0);
    s.post("/v1/chat/completions", secret_body());
  });
  EXPECT_THAT(text, HasSubstr("request_ended"));
}

TEST(ConfigureLogging, RefusesWhatItDoesNotKnow) {
  TestServer server;
  for (const Json& body :
       {Json{{"log_request", true}}, Json{{"log_requests_level", 4}}, Json{{"log_level", "loud"}},
        Json{{"crash_dump_folder", "/tmp"}}, Json{{"dump_requests_folder", "/proc/nowhere"}}})
    EXPECT_FALSE(server.post("/configure_logging", body, 400)["error"]["message"].empty())
        << body.dump();
}

// An admin's key must not be a way to write anywhere.
TEST(ConfigureLogging, DumpsOnlyBelowTheOperatorsFolder) {
  const fs::path root = fs::temp_directory_path() / fmt::format("admin-{}", getpid());
  const Json anywhere = {{"dump_requests_folder", (root / "x").string()}};
  {
    TestServer server;
    const Json refused = server.post("/configure_logging", anywhere, 400)["error"];
    EXPECT_EQ(refused["param"], "dump_requests_folder");
    EXPECT_THAT(refused["hint"].get<std::string>(), HasSubstr("--admin-folder"));
  }
  ServerSettings settings;
  settings.observe.admin_folder = root / "below";
  TestServer server(TestServer::Text::bundled, settings);
  server.post("/configure_logging", anywhere, 400);
  server.post("/configure_logging", {{"dump_requests_folder", "../x"}}, 400);
  EXPECT_FALSE(fs::exists(root / "x"));
  fs::remove_all(root);
}

class Dump : public testing::Test {
 protected:
  Dump() : folder_(fs::temp_directory_path() / fmt::format("dump-{}", getpid())) {}
  ~Dump() override { fs::remove_all(folder_); }

  ServerSettings settings() const {
    ServerSettings settings;
    settings.observe.dump_requests_folder = folder_;
    return settings;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(folder_)) all.push_back(entry.path());
    std::ranges::sort(all);
    return all;
  }
  static std::vector<Json> lines_of(const fs::path& path) {
    std::vector<Json> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
      lines.push_back(Json::parse(line, nullptr, false));
    return lines;
  }

  const fs::path folder_;
};

TEST_F(Dump, HoldsWhatWasAskedAndWhatCameOfIt) {
  {
    TestServer server(TestServer::Text::bundled, settings());
    say(server, "Paris");
    server.post("/v1/chat/completions", secret_body());
    Json two = secret_body();
    two["n"] = 2;
    server.stream("/v1/chat/completions", two);
    server.post("/v1/chat/completions", {{"messages", 3}}, 400);  // never began
  }
  ASSERT_EQ(files().size(), 1u);
  struct stat about{};
  ASSERT_EQ(stat(files()[0].c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  const std::vector<Json> lines = lines_of(files()[0]);
  ASSERT_EQ(lines.size(), 4u);  // head, one text, two texts
  EXPECT_EQ(lines[0]["hocket_dump"], 1);
  EXPECT_EQ(lines[0]["scheduler"]["schedule_policy"], "fcfs");
  EXPECT_EQ(lines[1]["body"], secret_body());
  EXPECT_EQ(lines[1]["path"], "/v1/chat/completions");
  EXPECT_EQ(lines[1]["status"], 200);
  EXPECT_EQ(lines[1]["finish"], "stop");
  EXPECT_EQ(lines[1]["output_length"], ids_of("Paris").size() + 1);
  int64_t sum = 0;
  for (const Json& len : lines[1]["hash_lengths"]) sum += len.get<int64_t>();
  EXPECT_EQ(sum, lines[1]["input_length"]);
  EXPECT_EQ(lines[2]["choice"], 0);
  EXPECT_EQ(lines[3]["choice"], 1);
  EXPECT_FALSE(lines[3].contains("body"));
  EXPECT_EQ(lines[2]["hash_ids"], lines[1]["hash_ids"]) << "the same prompt";
  EXPECT_EQ(lines[2]["ids_hash"], lines[1]["ids_hash"]) << "the same answer";
}

TEST_F(Dump, FullFilesAreFollowedByOthersAndTheOldestGo) {
  ServerSettings small = settings();
  small.observe.dump_requests_bytes = 1500;
  small.observe.dump_requests_files = 3;
  {
    TestServer server(TestServer::Text::bundled, small);
    for (int i = 0; i < 20; ++i) server.post("/v1/chat/completions", secret_body());
  }
  ASSERT_EQ(files().size(), 3u);
  size_t num_requests = 0;
  for (const fs::path& file : files()) {
    EXPECT_LE(fs::file_size(file), 4000u);
    EXPECT_EQ(lines_of(file)[0]["hocket_dump"], 1);
    num_requests += lines_of(file).size() - 1;
  }
  EXPECT_GE(num_requests, 3u);
  EXPECT_LT(num_requests, 20u);
}

TEST_F(Dump, BeginsAndEndsByConfigureLogging) {
  ServerSettings settings;
  settings.observe.admin_folder = folder_.parent_path();
  TestServer server(TestServer::Text::bundled, settings);
  server.post("/v1/chat/completions", secret_body());
  const Json told = server.post(
      "/configure_logging",
      {{"dump_requests_folder", folder_.filename().string()}, {"dump_requests_threshold", 2}});
  EXPECT_EQ(told["dump_requests_folder"], folder_.string());
  for (int i = 0; i < 3; ++i) server.post("/v1/chat/completions", secret_body());
  ASSERT_TRUE(eventually([&] { return files().size() == 2; }));
  EXPECT_EQ(
      server.post("/configure_logging", {{"dump_requests_folder", ""}})["dump_requests_folder"],
      Json());
  EXPECT_EQ(lines_of(files()[0]).size(), 3u);
  EXPECT_EQ(lines_of(files()[1]).size(), 2u);
}

TEST_F(Dump, AFolderThatCannotBeWrittenStopsTheStart) {
  ServerSettings wrong;
  wrong.http.port = 0;
  wrong.observe.dump_requests_folder = "/proc/nowhere";
  FakeGenerator generator;
  const auto server = Server::create({.settings = wrong, .generator = &generator});
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, ErrorCode::io);
}

// A port that takes spans, or does not.
class TestCollector {
 public:
  explicit TestCollector(int status = 200) {
    auto made = HttpServer::create({}, [this, status](HttpRequest&& request, auto exchange) {
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
  // By name; equal names in order.
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
  const std::string body = secret_body().dump();
  TestClient client(server.server->port());
  client.send(
      fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\ntraceparent: {}\r\n"
                  "Content-Length: {}\r\n\r\n{}",
                  traceparent, body.size(), body));
  return client.receive();
}

const char* const kParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(Traces, ARequestIsASpanWithItsStagesBelow) {
  TestCollector collector;
  {
    TestServer server(TestServer::Text::bundled, traced(collector));
    say(server, "Paris");
    EXPECT_EQ(post_under(server, kParent).status, 200);
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
  EXPECT_THAT(root.dump(), Not(HasSubstr("quince")));
}

// A thousand requests may wait for the observer's thread.
TEST(RequestStory, WhatWaitsHoldsNumbersAndNoLists) {
  Answer answer;
  answer.prompts = {{TokenId{1}}};
  Prompt& prompt = answer.request.prompts.emplace_back();
  prompt.sampling.temperature = 0.5;
  prompt.sampling.stop = {std::string(1000, 'x')};
  prompt.sampling.stop_ids = std::vector<TokenId>(1000, TokenId{7});
  prompt.sampling.allowed_ids = prompt.sampling.stop_ids;
  ObserverInbox inbox;
  RequestStory(inbox, {.log = true}, {}).began(answer);
  const auto note = inbox.notes.pop();
  ASSERT_TRUE(note.has_value());
  const PromptRecord& told = note->record.prompts.front();
  EXPECT_EQ(told.sampling.temperature, 0.5);
  EXPECT_EQ(told.num_stops, 1001);
  EXPECT_TRUE(told.sampling.stop.empty());
  EXPECT_TRUE(told.sampling.stop_ids.empty());
  EXPECT_TRUE(told.sampling.allowed_ids.empty());
}

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
    server.generator.late_error = error(ErrorCode::bad_logits, "not finite");
    server.post("/v1/chat/completions", secret_body(), 500);
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
  server.post("/v1/chat/completions", secret_body());
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
    for (int i = 0; i < 20; ++i) server.post("/v1/chat/completions", secret_body());
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
