#include "engine/stats/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/clock_testing.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two ranks of a service of three, whose steps the test writes by hand.
class ProfileTest : public ::testing::Test {
 protected:
  ProfileTest()
      : dir_(fmt::format("{}hocket-profile-{}", ::testing::TempDir(),
                         ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(dir_);
    clock_.advance(1h);
  }
  ~ProfileTest() override { std::filesystem::remove_all(dir_); }

  Profiler::Start into(int num_steps = 0) const {
    return {.dir = dir_, .id = "p", .num_steps = num_steps};
  }
  // Notes a step of 100 us: an operation of 60 us that sends, and one that waits 30 us for 20 us of
  // wire.
  void step(int rank, uint64_t number) {
    Ledger& ledger = rank == 0 ? ledgers_[0] : ledgers_[1];
    const TimePoint begin = clock_.now();
    ledger.begin_step(begin);
    ledger.begin_pass(number, {}, {Phase::decode, 4, 400}, false);
    ledger.begin_op(0, Op::dispatch_start, 0);
    clock_.advance(60us);
    ledger.end_op();
    ledger.begin_op(0, Op::dispatch_wait, 0);
    clock_.advance(40us);
    ledger.finished(0, MessageKind::dispatch, {.step = number},
                    {.start = begin + 10us,
                     .posted = begin + 20us,
                     .peers_posted = begin + 70us,
                     .last_byte = begin + 90us,
                     .wait_in = begin + 60us,
                     .wait_out = begin + 90us,
                     .out_bytes = 100,
                     .in_bytes = 200});
    ledger.end_op();
    ledger.end_step(clock_.now());
    profiler_.note(rank, ledger);
  }
  void both(uint64_t number) { step(0, number), step(1, number); }
  static json read(const std::string& path) {
    std::ifstream file(path);
    return json::parse(file);
  }
  static std::set<int> steps_of(const json& trace, int rank) {
    std::set<int> steps;
    for (const json& event : trace["traceEvents"])
      if (event["pid"] == rank && event.value("cat", "") == "step")
        steps.insert(event["args"]["step"].get<int>());
    return steps;
  }

  const std::string dir_;
  FakeClock clock_;
  Ledger ledgers_[2] = {{{.num_layers = 1, .num_ranks = 3}, clock_},
                        {{.num_layers = 1, .num_ranks = 3}, clock_}};
  Profiler profiler_{{.num_here = 2,
                      .num_ranks = 3,
                      .model = "a \"model\"",
                      .orders = &OrderTable::builtin(),
                      .spans_per_step = Ledger::max_spans({1, 3})}};
};

TEST_F(ProfileTest, AllRanksRecordTheSameSteps) {
  both(1);
  step(0, 2);  // rank 1 is behind
  const auto begun = profiler_.start(into(2));
  ASSERT_TRUE(begun.has_value()) << begun.error().message;
  EXPECT_TRUE(begun->running);
  EXPECT_EQ(begun->file, dir_ + "/p-rank0.trace.json");
  step(1, 2);
  for (uint64_t number = 3; number < 9; ++number) both(number);
  while (profiler_.status().running) std::this_thread::yield();
  EXPECT_TRUE(profiler_.status().is_written);
  const json trace = read(begun->file);
  EXPECT_EQ(trace["otherData"]["model"], "a \"model\"");
  EXPECT_EQ(trace["otherData"]["steps_left_out"], 0);
  for (const int rank : {0, 1}) EXPECT_THAT(steps_of(trace, rank), ElementsAre(4, 5));
  const std::filesystem::directory_iterator files(dir_);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);  // no half-written ones
}

TEST_F(ProfileTest, AStepIsThereWithWhatWasBooked) {
  ASSERT_TRUE(profiler_.start({.dir = dir_, .start_step = 3}).has_value());
  both(1), both(2), both(3);
  const auto done = profiler_.stop();
  ASSERT_TRUE(done.has_value()) << done.error().message;
  EXPECT_EQ(done->num_steps, 1);
  const json trace = read(done->file);
  std::map<std::string, double> durations;
  for (const json& event : trace["traceEvents"]) {
    if (event["pid"] != 0 || event["ph"] != "X") continue;
    durations[event["name"]] = event["dur"];
    if (event["cat"] == "step") {
      EXPECT_EQ(event["args"]["plan"], "none");
      EXPECT_EQ(event["args"]["rows"], 4);
      EXPECT_EQ(event["args"]["waiting_us"], 10);
      EXPECT_EQ(event["args"]["exposed_us"], 20);
    }
  }
  EXPECT_THAT(durations,
              ElementsAre(std::pair("dispatch a0", 20), std::pair("dispatch_start", 60),
                          std::pair("dispatch_wait", 40), std::pair("ranks: dispatch a0", 10),
                          std::pair("step 3", 100)));
}

// Between ranks of the file each arrow has both ends and lies within slices. An arrow to or from
// the third rank has one end; that rank's file has the other.
TEST_F(ProfileTest, ArrowsLeadFromTheSenderToTheReceiver) {
  ASSERT_TRUE(profiler_.start(into(1)).has_value());
  for (uint64_t number = 1; number < 5; ++number) both(number);
  while (profiler_.status().running) std::this_thread::yield();
  const json trace = read(profiler_.status().file);
  std::map<std::string, std::vector<std::string>> arrows;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "s" && event["ph"] != "f") continue;
    arrows[event["id"]].push_back(
        fmt::format("{}{}", event["ph"].get<std::string>(), event["pid"].get<int>()));
    const bool is_within = std::ranges::any_of(trace["traceEvents"], [&](const json& slice) {
      return slice["ph"] == "X" && slice["pid"] == event["pid"] && slice["tid"] == event["tid"] &&
             slice["cat"] != "step" && slice["ts"] <= event["ts"] &&
             event["ts"].get<double>() < slice["ts"].get<double>() + slice["dur"].get<double>();
    });
    EXPECT_TRUE(is_within) << event;
  }
  std::multiset<std::vector<std::string>> found;
  for (const auto& [id, ends] : arrows) found.insert(ends);
  EXPECT_THAT(found,
              ElementsAre(std::vector<std::string>{"f0"}, std::vector<std::string>{"f0", "s1"},
                          std::vector<std::string>{"f1"}, std::vector<std::string>{"s0"},
                          std::vector<std::string>{"s0", "f1"}, std::vector<std::string>{"s1"}));
}

TEST_F(ProfileTest, RefusesWithAReason) {
  EXPECT_THAT(profiler_.stop().error().message, HasSubstr("no profile runs"));
  EXPECT_THAT(profiler_.start(into(-1)).error().message, HasSubstr("num_steps is -1"));
  const auto nowhere = profiler_.start({.dir = "/proc/nowhere"});
  ASSERT_FALSE(nowhere.has_value());
  EXPECT_EQ(nowhere.error().code, ErrorCode::io);
  EXPECT_THAT(nowhere.error().message, HasSubstr("cannot write profiles to /proc/nowhere: "));
  ASSERT_TRUE(profiler_.start(into()).has_value());
  EXPECT_THAT(profiler_.start(into()).error().message, HasSubstr("a profile runs already"));
  EXPECT_TRUE(profiler_.stop().has_value());  // no step was noted
  EXPECT_THAT(profiler_.stop().error().fix, HasSubstr(dir_));
}

TEST_F(ProfileTest, SpansAreKeptWhileSomebodyProfilesAlone) {
  step(0, 1);
  EXPECT_TRUE(ledgers_[0].spans().empty());
  ASSERT_TRUE(profiler_.start(into()).has_value());
  step(0, 2), step(0, 3);
  EXPECT_FALSE(ledgers_[0].spans().empty());
  ASSERT_TRUE(profiler_.stop().has_value());
  step(0, 4), step(0, 5);
  EXPECT_TRUE(ledgers_[0].spans().empty());
}

}  // namespace
}  // namespace hocket
