// The log and the dump of a server that is observed.
#include "server/observe/observer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "server/generation/answer.h"
#include "server/tests/test_server.h"

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

// Returns the log of a server with these settings while `use` runs.
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

TEST(RequestLog, TellsDraftsOfAllTexts) {
  Json body = secret_body();
  body["n"] = 2;
  const auto text_with = [&](DraftCounts drafts) {
    return logged({.log_requests = true}, [&](TestServer& s) {
      s.engine.drafts.write(drafts);
      s.post("/v1/chat/completions", body);
    });
  };
  EXPECT_THAT(text_with({.num_verified = 2, .num_drafts = 5, .num_accepted = 4}),
              HasSubstr(" spec_verify_ct=4 spec_drafts=10 spec_accepted=8 "));
  EXPECT_THAT(text_with({}), Not(HasSubstr("spec_")));
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
    s.engine.refusal = error(ErrorCode::queue_full, "full");
    s.post("/v1/chat/completions", secret_body(), 429);
  });
  EXPECT_THAT(text, HasSubstr("status=400 code=invalid_request"));
  EXPECT_THAT(text, HasSubstr("param=temperature"));
  EXPECT_THAT(text, HasSubstr("status=429 code=queue_full"));
  EXPECT_THAT(text, Not(HasSubstr("quince")));
}

TEST(RequestLog, AClientThatLeavesIs499) {
  const std::string text = logged({.log_requests = true}, [](TestServer& s) {
    s.engine.pace_us = 20000;
    s.engine.script = [](const RequestInput&) { return ids_of(kSentence); };
    {
      TestClient client(s.server->port());
      client.send(TestServer::request_text("POST", "/v1/chat/completions", secret_body().dump()));
      ASSERT_TRUE(eventually([&] { return s.engine.num_running() == 1; }));
    }
    ASSERT_TRUE(eventually([&] { return s.engine.num_running() == 0; }));
  });
  EXPECT_THAT(text, HasSubstr("status=499 code=client_left finish=abort"));
}

TEST(ConfigureLogging, ChangesWhatIsLoggedFromThenOn) {
  const std::string text = logged({}, [](TestServer& s) {
    const Json got =
        s.post("/configure_logging", {{"log_requests", true}, {"log_requests_level", 0}});
    EXPECT_EQ(got["log_requests"], true);
    EXPECT_EQ(got["log_requests_level"], 0);
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

// An admin's key must not allow writing files anywhere.
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
    server.post("/v1/chat/completions", {{"messages", 3}}, 400);  // refused before it began
  }
  ASSERT_EQ(files().size(), 1u);
  struct stat about{};
  ASSERT_EQ(stat(files()[0].c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  const std::vector<Json> lines = lines_of(files()[0]);
  ASSERT_EQ(lines.size(), 4u);  // the head, one text, two texts
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
  const Json got = server.post(
      "/configure_logging",
      {{"dump_requests_folder", folder_.filename().string()}, {"dump_requests_threshold", 2}});
  EXPECT_EQ(got["dump_requests_folder"], folder_.string());
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
  FakeServerEngine engine;
  const auto server = Server::create({.settings = wrong, .engine = &engine});
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code, ErrorCode::io);
}

// Simulates a disk that takes nothing for a while: the folder is removed.
TEST_F(Dump, WhileNothingCanBeWrittenAllAreLostAndThenItGoesOn) {
  RequestRecord record;
  record.body = "{}";
  DumpCounts counts;
  const auto made = RequestDump::create(
      {.folder = folder_, .requests_of_file = 1, .retry_after = Duration{}}, counts);
  ASSERT_TRUE(made.has_value()) << made.error().message;
  RequestDump& dump = **made;
  const auto add = [&](int times) {
    for (int i = 0; i < times; ++i) dump.add(record);
    dump.flush();
  };
  testing::internal::CaptureStderr();
  add(1);
  EXPECT_EQ(counts.written, 1u);
  fs::remove_all(folder_);
  add(3);
  EXPECT_EQ(counts.written, 1u);
  EXPECT_EQ(counts.lost, 3u);
  fs::create_directories(folder_);
  add(2);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(counts.written, 3u);
  EXPECT_EQ(counts.lost, 3u);
  EXPECT_EQ(files().size(), 2u);
  const size_t got = log.find("dump: requests are lost");
  ASSERT_NE(got, log.npos);
  EXPECT_EQ(log.find("dump: requests are lost", got + 1), log.npos) << log;
  EXPECT_THAT(log, HasSubstr("dump: requests are kept again"));
}

TEST_F(Dump, AFileThatCouldNotBeWrittenEndsWithAWholeLine) {
  RequestRecord record;
  record.body = R"({"x": 1})";
  record.choices.resize(1);
  record.prompts.resize(1);
  DumpCounts counts;
  {
    const auto made = RequestDump::create({.folder = folder_}, counts);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    (*made)->add(record);
    (*made)->flush();
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small{.rlim_cur = fs::file_size(files()[0]) + 10, .rlim_max = before.rlim_max};
    auto* const handler = signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    (*made)->add(record);
    (*made)->flush();
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    (*made)->add(record);  // before retry_after
  }
  EXPECT_EQ(counts.written, 1u);
  EXPECT_EQ(counts.lost, 2u);
  ASSERT_EQ(files().size(), 1u);
  const std::vector<Json> lines = lines_of(files()[0]);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["body"]["x"], 1);
}

TEST(RequestRecorder, WhatWaitsHoldsNumbersAndNoLists) {
  PreparedRequest prepared;
  prepared.prompts = {{TokenId{1}}};
  Prompt& prompt = prepared.request.prompts.emplace_back();
  prompt.sampling.temperature = 0.5;
  prompt.sampling.stop = {std::string(1000, 'x')};
  prompt.sampling.stop_ids = std::vector<TokenId>(1000, TokenId{7});
  prompt.sampling.allowed_ids = prompt.sampling.stop_ids;
  ObserverInbox inbox;
  RequestRecorder(inbox, {.log = true}, {}).began(prepared);
  const auto note = inbox.notes.pop();
  ASSERT_TRUE(note.has_value());
  const PromptRecord& got = note->record.prompts.front();
  EXPECT_EQ(got.sampling.temperature, 0.5);
  EXPECT_EQ(got.num_stops, 1001);
  EXPECT_TRUE(got.sampling.stop.empty());
  EXPECT_TRUE(got.sampling.stop_ids.empty());
  EXPECT_TRUE(got.sampling.allowed_ids.empty());
}

}  // namespace
}  // namespace hocket
