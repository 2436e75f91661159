// Tests experts that move while requests are served: answers have the bits of one rank alone,
// before, during and after, and what cannot be loaded stays where it is.
#include <filesystem>
#include <fstream>
#include <ranges>

#include "base/log.h"
#include "engine/rank_setup.h"
#include "engine/tests/folder_copy.h"
#include "engine/tests/probe.h"
#include "engine/tests/service.h"

namespace hocket {
namespace {

using namespace testing;

struct MovingCase {
  const char* name;
  Form form;
  int num_ranks = 2;
  const char* overlap_schedule = "off";
  const char* overlap = "";
  const char* replicas = "0";
  const char* algorithm = "auto";
};

ServerSettings moving_settings(const MovingCase& c) {
  ServerSettings settings = settings_of(c.form, c.num_ranks);
  settings.parallel.enable_eplb = true;
  settings.parallel.eplb_rebalance_num_iterations = 3;
  settings.parallel.dp_routing = "round-robin";
  settings.parallel.ep_num_redundant_experts = c.replicas;
  settings.parallel.eplb_algorithm = c.algorithm;
  settings.parallel.overlap = c.overlap;
  settings.scheduler.overlap_schedule = c.overlap_schedule;
  return settings;
}

// Asks for the same answers again and again, until `so` returns true.
void ask_until(Service& service, const std::vector<Answer>& want,
               const std::function<bool(const ExpertMoveStats&)>& so) {
  const TimePoint deadline = RealClock().now() + kPatience;
  do {
    ASSERT_LT(RealClock().now(), deadline) << "nothing moved";
    std::vector<RequestId> ids;
    for (RequestInput& input : traffic(static_cast<int>(want.size())))
      ids.push_back(*service.submit(std::move(input)));
    ASSERT_TRUE(service.read_all());
    for (size_t i = 0; i < ids.size(); ++i) {
      SCOPED_TRACE(fmt::format("request {}", i));
      const Answer& got = service.answer(ids[i]);
      ASSERT_EQ(got.summary.finish, want[i].summary.finish) << got.summary.error.message;
      ASSERT_NO_FATAL_FAILURE(expect_same(got, want[i]));
    }
  } while (!so(*service.engine().stats().moves));
}

class MovingExperts : public ::testing::TestWithParam<MovingCase> {
 protected:
  void SetUp() override { log::set_level(log::Level::error); }
  void TearDown() override { log::set_level(log::Level::info); }
};

TEST_P(MovingExperts, ChangeNoBit) {
  const std::vector<Answer> want = alone(settings_of(GetParam().form, 1), traffic(14));
  Service service(moving_settings(GetParam()));
  ASSERT_TRUE(service.works());
  // Moves load with the lowest priority, so rounds go by until some has moved.
  ASSERT_NO_FATAL_FAILURE(ask_until(service, want, [](const ExpertMoveStats& moves) {
    return moves.checks_total > 1 && moves.layers_total > 0 && moves.num_remaining_layers == 0;
  }));
  const EngineStats stats = service.engine().stats();
  EXPECT_GT(stats.moves->moves_total, 0u);
  EXPECT_EQ(stats.moves->failures_total, 0u) << stats.moves->last_error;
  for (const RankStats& rank : stats.ranks)
    EXPECT_NEAR(static_cast<double>(rank.moves->checks_total),
                static_cast<double>(stats.moves->checks_total), 1);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, MovingExperts,
    ::testing::Values(MovingCase{"bundled", kBundled}, MovingCase{"bundled_four", kBundled, 4},
                      MovingCase{"overlapped_steps", kBundled, 2, "on"},
                      MovingCase{"overlapped_steps_four", kMoe, 4, "on"},
                      MovingCase{"two_batches", kBundled, 2, "off", "two-batch"},
                      MovingCase{"parts", kBundled, 4, "on", "single-batch"},
                      MovingCase{"replicas", kBundled, 2, "off", "", "4"},
                      MovingCase{"replicas_global", kBundled, 4, "on", "", "4", "global"},
                      MovingCase{"mla", kMla, 2, "on"}, MovingCase{"hybrid", kDelta, 2, "on"},
                      MovingCase{"hybrid_int8_four", kDeltaInt8, 4},
                      MovingCase{"int4", kInt4, 2, "on"}, MovingCase{"fp8", kFp8},
                      MovingCase{"nvfp4", kNvfp4}, MovingCase{"stacked_files", kGptOss}),
    [](const auto& param) { return std::string(param.param.name); });

class MovingExpertsTest : public ::testing::Test {
 protected:
  void SetUp() override { log::set_level(log::Level::off); }
  void TearDown() override { log::set_level(log::Level::info); }
};

// The files change, or go away: experts stay where they are, and all is served as before.
TEST_F(MovingExpertsTest, WhatCannotBeReadStaysWhereItIs) {
  for (const bool removes : {false, true}) {
    SCOPED_TRACE(removes);
    const std::vector<Answer> want = alone(settings_of(kBundled, 1), traffic(6));
    FolderCopy copy(kBundledFolder);
    ServerSettings settings = moving_settings({"", {"copy", copy.path}, 2, "on"});
    Service service(settings);
    ASSERT_TRUE(service.works());
    if (removes)
      std::filesystem::remove_all(copy.path);
    else
      copy.change();
    ASSERT_NO_FATAL_FAILURE(ask_until(
        service, want, [](const ExpertMoveStats& moves) { return moves.failures_total > 1; }));
    const ExpertMoveStats moves = *service.engine().stats().moves;
    EXPECT_EQ(moves.layers_total, 0u);
    const char* const part = removes ? "" : "have changed since the start";
    EXPECT_NE(moves.last_error.find(part), std::string::npos) << moves.last_error;
  }
}

// Any two of three ranks have places for all 16 experts; where that cannot be, it is refused.
TEST_F(MovingExpertsTest, TheRanksThatAreLeftHavePlacesForAllExperts) {
  ServerSettings settings = settings_of(kBundled, 3);
  settings.parallel.tolerate_ranks = 1;
  const auto load = [&] {
    return load_ranks({.settings = settings, .progress = {}, .tokenizer_eos = {}});
  };
  const auto runners = load();
  ASSERT_TRUE(runners) << describe(runners.error());
  EXPECT_EQ((*runners)[0]->placement().first().fewest_places(2), 16);
  EXPECT_TRUE(std::ranges::any_of((*runners)[0]->info().changes, [](const SettingChange& change) {
    return change.flag == "--ep-num-redundant-experts" && change.to == "8";
  }));
  // So it is where a file of counts says which experts get the replicas.
  const auto file = std::filesystem::path(::testing::TempDir()) / "hocket-counts-of-three.json";
  const std::string counts = fmt::format("[{}]", fmt::join(std::views::iota(1, 17), ", "));
  std::ofstream(file) << fmt::format(R"({{"logical_count": [{0}, {0}, {0}, {0}]}})", counts);
  settings.parallel.init_expert_location = file.string();
  settings.parallel.ep_num_redundant_experts = "3";
  const auto counted = load();
  ASSERT_TRUE(counted) << describe(counted.error());
  EXPECT_EQ((*counted)[0]->placement().first().num_places(), 24);
  settings.parallel.init_expert_location = "trivial";
  settings.compute.combine_groups = 4;
  EXPECT_NE(describe(load().error()).find("experts are taken over one by one"), std::string::npos);
}

// Where ranks may be missing, the model's own module is loaded as elsewhere, and its experts have a
// placement of their own.
TEST_F(MovingExpertsTest, WhereRanksMayBeMissingTheModuleDrafts) {
  ServerSettings settings = settings_of(kBundled, 3);
  settings.parallel.tolerate_ranks = 1;
  for (const std::string algorithm : {"auto", "NEXTN"}) {
    settings.speculation.algorithm = algorithm;
    const auto runners = load_ranks({.settings = settings, .progress = {}, .tokenizer_eos = {}});
    ASSERT_TRUE(runners) << describe(runners.error());
    const EngineInfo& info = (*runners)[0]->info();
    EXPECT_EQ(info.speculation.algorithm, algorithm);
    EXPECT_EQ(info.model.num_mtp_loaded, 1);
    EXPECT_EQ((*runners)[0]->placement().num_layers(), info.model.num_layers + 1);
  }
}

TEST_F(MovingExpertsTest, ClearErrors) {
  const auto expect = [](const std::function<void(ServerSettings&)>& change, const char* part) {
    ServerSettings settings = settings_of(kBundled, 2);
    settings.parallel.enable_eplb = true;
    change(settings);
    const auto made = Engine::create({.settings = settings});
    ASSERT_FALSE(made.has_value()) << part;
    EXPECT_NE(describe(made.error()).find(part), std::string::npos) << describe(made.error());
  };
  expect([](ServerSettings& s) { s.parallel.ep_size = 1; },
         "--enable-eplb moves experts between ranks, but there is one");
  expect([](ServerSettings& s) { s.parallel.eplb_rebalance_num_iterations = 0; },
         "--eplb-rebalance-num-iterations 0 is not in 1 to");
  expect(
      [](ServerSettings& s) {
        s.parallel.enable_eplb = false;
        s.parallel.eplb_rebalance_num_iterations = 10;
      },
      "has no effect without --enable-eplb");
  // Names of SGLang are refused with ours.
  for (const auto& [theirs, ours] :
       {std::pair("deepseek", "fix: global"), std::pair("deepseek_hierarchical", "fix: hierarch"),
        std::pair("deepseek_vec", "fix: global"), std::pair("elasticity_aware", "fix: auto; --tol"),
        std::pair("none", "fix: auto")})
    expect([&](ServerSettings& s) { s.parallel.eplb_algorithm = theirs; }, ours);
  for (const auto& [theirs, ours] :
       {std::pair("stat_approx", "fix: stat, which"), std::pair("per_token", "fix: per_pass; ret"),
        std::pair("all", "fix: stat")})
    expect([&](ServerSettings& s) { s.parallel.expert_distribution_recorder_mode = theirs; }, ours);
  expect([](ServerSettings& s) { s.parallel.lost_rank_wait_s = 5; }, "so none can rejoin");
  expect([](ServerSettings& s) { s.parallel.tolerate_ranks = 1; }, "so they are lost together");
  expect([](ServerSettings& s) { s.compute.combine_groups = 2; },
         "--enable-eplb moves experts one by one");
}

}  // namespace
}  // namespace hocket
