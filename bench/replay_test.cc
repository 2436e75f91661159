#include "bench/replay.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace hocket {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

class DumpFile : public ::testing::Test {
 protected:
  DumpFile() : path_(fs::temp_directory_path() / fmt::format("dump-{}.jsonl", getpid())) {}
  ~DumpFile() override { fs::remove(path_); }

  Result<Dump> read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_dump({path_});
  }
  static std::string line(double at, std::string_view id, std::string_view path, Json body) {
    return Json{{"timestamp", at},
                {"ids_hash", fmt::format("h-{}", id)},
                {"ttft_ms", 2.5},
                {"e2e_ms", 7.5},
                {"status", 200},
                {"id", id},
                {"choice", 0},
                {"path", path},
                {"stream", false},
                {"seed", -5},
                {"body", std::move(body)}}
               .dump() +
           "\n";
  }
  static constexpr const char* kHead = "{\"hocket_log\":1,\"hocket_dump\":1}\n";

  const fs::path path_;
};

TEST_F(DumpFile, ComesInTheOrderOfTimeAndAsksForTheSame) {
  Json more = {{"timestamp", 900.0}, {"ids_hash", "second"}, {"status", 200}, {"id", "b"},
               {"choice", 1},        {"ttft_ms", 1},         {"e2e_ms", 1}};
  const auto dump = read(kHead + line(900, "b", "/v1/chat/completions", {{"n", 2}}) + more.dump() +
                         "\n" + line(400, "a", "/generate", {{"text", "x"}}) +
                         line(500, "c", "/v1/completions", {{"prompt", "x"}, {"seed", 3}}) +
                         line(1000, "d", "/v1/messages", {{"messages", 1}}) + kHead);
  ASSERT_TRUE(dump) << dump.error().message;
  ASSERT_EQ(dump->requests.size(), 4u);
  const auto body = [&](size_t i) { return Json::parse(dump->requests[i].body); };
  EXPECT_EQ(dump->requests[0].path, "/generate");
  EXPECT_EQ(dump->requests[0].due_ms, 0);
  EXPECT_EQ(body(0)["sampling_params"]["seed"], -5);
  EXPECT_EQ(body(1)["seed"], 3) << "the client's own";
  EXPECT_EQ(body(1)["return_token_ids"], true);
  EXPECT_EQ(dump->requests[2].due_ms, 500);
  EXPECT_EQ(body(2)["seed"], -5);
  EXPECT_EQ(dump->requests[2].ids_hashes, (std::vector<std::string>{"h-b", "second"}));
  EXPECT_TRUE(dump->requests[3].ids_hashes.empty()) << "tells no ids";
  EXPECT_EQ(body(3), (Json{{"messages", 1}}));
}

TEST_F(DumpFile, ABodyThatWasNotKeptIsLeftOut) {
  const auto dump =
      read(line(1, "a", "/generate", Json()) + line(2, "b", "/generate", Json::object()));
  ASSERT_TRUE(dump);
  EXPECT_EQ(dump->num_left_out, 1);
  EXPECT_EQ(dump->requests.size(), 1u);
}

TEST_F(DumpFile, HalfALineAtTheEndIsNoTroubleOneInTheMiddleIs) {
  const std::string whole = line(1, "a", "/generate", Json::object());
  EXPECT_TRUE(read(whole + whole.substr(0, 40)));
  const auto broken = read(whole.substr(0, 40) + "\n" + whole);
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.error().message.find("line 1 "), std::string::npos);
}

TEST_F(DumpFile, LogsWithoutBodiesAreRefused) {
  EXPECT_EQ(read("{\"hocket_log\":1}\n").error().code, ErrorCode::bad_value);
  EXPECT_EQ(read_dump({"/nowhere"}).error().code, ErrorCode::io);
  EXPECT_EQ(read(kHead).error().code, ErrorCode::bad_value);
}

}  // namespace
}  // namespace hocket
