// The answers of the profile paths, without a model.
#include "server/reports/profile.h"

#include <gmock/gmock.h>

#include <filesystem>

namespace hocket {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ProfileEndpoints : public ::testing::Test {
 protected:
  ProfileEndpoints()
      : dir_(fmt::format("{}hocket-endpoint-{}", ::testing::TempDir(),
                         ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(dir_);
  }
  ~ProfileEndpoints() override { std::filesystem::remove_all(dir_); }

  Json start(Json body) {
    body["output_dir"] = "mine";
    const auto begun = start_profile(profiler_, dir_, to_text(body));
    EXPECT_TRUE(begun.has_value()) << begun.error().message;
    if (!begun) return {};
    others_ = Json::parse(begun->others);
    return begun->answer;
  }
  std::string refused(std::string_view body) {
    const auto answer = start_profile(profiler_, dir_, body);
    return answer ? "started" : answer.error().param + ": " + answer.error().message;
  }

  const std::string dir_;
  Json others_;
  Profiler profiler_{{.spans_per_step = 10}};
};

TEST_F(ProfileEndpoints, TheAnswerSaysWhereTheFileWillBeAndWhatIsIgnored) {
  const Json begun = start({{"num_steps", 5},
                            {"start_step", 3},
                            {"profile_id", "x"},
                            {"activities", {"CPU", "GPU"}},
                            {"with_stack", false}});
  EXPECT_EQ(begun, (Json{{"profiling", true},
                         {"files", {dir_ + "/mine/x-rank0.trace.json"}},
                         {"num_steps", 5},
                         {"ignored", {"activities"}}}));
  EXPECT_THAT(refused("{}"), HasSubstr("a profile runs already"));
  const auto done = stop_profile(profiler_);
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(*done, (Json{{"profiling", false}, {"files", begun["files"]}, {"num_steps", 0}}));
  EXPECT_TRUE(std::filesystem::exists(begun["files"][0].get<std::string>()));
  EXPECT_THAT(stop_profile(profiler_).error().message, HasSubstr("no profile runs"));
}

TEST_F(ProfileEndpoints, OtherRanksGetTheSameName) {
  const Json begun = start(Json::object());
  EXPECT_EQ(begun["num_steps"], nullptr);
  const std::string file = begun["files"][0];
  EXPECT_EQ(file, dir_ + "/mine/" + others_["profile_id"].get<std::string>() + "-rank0.trace.json");
  EXPECT_EQ(others_["output_dir"], "mine");
}

TEST_F(ProfileEndpoints, RefusesWithTheField) {
  EXPECT_EQ(refused(R"({"num_steps": 0})"),
            "num_steps: num_steps must be between 1 and 10000, not 0");
  EXPECT_THAT(refused(R"({"profile_id": "../x"})"), HasSubstr("profile_id names files"));
  EXPECT_THAT(refused(R"({"profile_id": ".x"})"), HasSubstr("profile_id names files"));
  for (const char* out : {"/tmp", "..", "../x", "a/b", ".x"})
    EXPECT_THAT(refused(fmt::format(R"({{"output_dir": "{}"}})", out)),
                HasSubstr("output_dir: output_dir is the name of a folder in --admin-folder"))
        << out;
  EXPECT_THAT(refused(R"({"output_dirs": "x"})"), HasSubstr("output_dirs"));
}

TEST_F(ProfileEndpoints, IsWrittenOnlyWhereTheOperatorSaid) {
  const auto nowhere = start_profile(profiler_, "", R"({"output_dir": "/tmp", "num_steps": 1})");
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_EQ(nowhere.error().param, "output_dir");
  EXPECT_THAT(nowhere.error().fix, HasSubstr("--admin-folder"));
  // A link in place of the file would lead out of the folder.
  std::filesystem::create_directories(dir_);
  std::filesystem::create_symlink("/tmp/hocket-elsewhere", dir_ + "/x-rank0.trace.json");
  EXPECT_THAT(refused(R"({"profile_id": "x"})"), HasSubstr("is a link"));
}

}  // namespace
}  // namespace hocket
