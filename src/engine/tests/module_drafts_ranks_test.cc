// Tests drafts of the models' own modules on several ranks under aborts and short memory.
#include <chrono>
#include <random>
#include <thread>

#include "base/log.h"
#include "engine/tests/service.h"

namespace hocket {
namespace {

using namespace testing;

// Requests end, are aborted and come back between the agreement on the module's passes and these,
// also where steps overlap (the parameter is --overlap-schedule).
class ModuleDraftsOfBusyRanks : public ::testing::TestWithParam<const char*> {};

TEST_P(ModuleDraftsOfBusyRanks, SurviveAbortsAndRetractions) {
  log::set_level(log::Level::error);
  constexpr int kRequests = 24;
  const Form form{"deepseek_v3_mtp", kGolden / "deepseek_v3_mtp"};
  std::vector<RequestInput> inputs = traffic(kRequests);
  for (size_t i = 0; i < kRequests; i += 2) {
    inputs[i] = greedy_input(random_tokens(500 + static_cast<int>(i), 10), 100);
    inputs[i].sampling.ignore_eos = true;
  }
  const std::vector<Answer> want = alone(settings_of(form, 1), inputs);
  ServerSettings settings = settings_of(form, 2);
  settings.parallel.dp_routing = "round-robin";
  settings.memory.max_total_tokens = 256;
  settings.memory.page_size = 16;
  settings.scheduler.schedule_conservativeness = 0.01;
  settings.speculation = {.algorithm = "NEXTN", .num_steps = 3};
  settings.scheduler.overlap_schedule = GetParam();
  // Rounds differ in when requests come; on a very busy machine some need no retraction.
  std::mt19937 random(5);
  uint64_t num_retracted = 0;
  for (int round = 0; round < 10 && num_retracted == 0; ++round) {
    Service service(settings);
    ASSERT_TRUE(service.works());
    std::vector<RequestId> ids;
    for (const RequestInput& input : inputs) {
      ids.push_back(*service.submit(input));
      if (random() % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 8));
      if (random() % 6 == 0) service.engine().abort(ids[random() % ids.size()]);
    }
    ASSERT_TRUE(service.read_all());
    for (size_t i = 0; i < ids.size(); ++i) {
      SCOPED_TRACE(i);
      const Answer& got = service.answer(ids[i]);
      if (got.summary.finish == FinishReason::abort) continue;
      ASSERT_EQ(got.summary.finish, want[i].summary.finish) << got.summary.error.message;
      ASSERT_NO_FATAL_FAILURE(expect_same(got, want[i]));
    }
    for (const RankStats& rank : service.engine().stats().ranks)
      num_retracted += rank.scheduler.num_retracted_total;
  }
  EXPECT_GT(num_retracted, 0U);
  log::set_level(log::Level::info);
}

INSTANTIATE_TEST_SUITE_P(OverlapSchedule, ModuleDraftsOfBusyRanks, ::testing::Values("off", "on"),
                         [](const auto& param) { return std::string(param.param); });

// Requests with common beginnings come while others run; their prompts and answers are followed in
// overlapped steps, and some ranks draft while others overlap their steps with the drafts.
TEST(ModuleDraftsOfRanks, ChangeNoBitWhereStepsOverlap) {
  log::set_level(log::Level::error);
  std::vector<RequestInput> inputs = traffic(16);
  for (int i = 0; i < 4; ++i) {
    inputs.push_back(greedy_input(random_tokens(700 + i, 8), 200));
    inputs.back().sampling.ignore_eos = true;
  }
  for (const char* model : {"deepseek_v3_mtp", "qwen3_5_moe_mtp", "mimo_v2_flash_mtp"}) {
    const Form form{model, kGolden / model};
    const std::vector<Answer> want = alone(settings_of(form, 1), inputs);
    const struct {
      int num_ranks, num_drafts;  // 0: the gate chooses
      const char *overlaps, *algorithm, *prefill;
    } cases[] = {{1, 0, "on", "NEXTN", "prefill-first"}, {1, 2, "on", "auto", "mixed"},
                 {2, 0, "on", "NEXTN", "mixed"},         {2, 3, "on", "NEXTN", "prefill-first"},
                 {2, 0, "auto", "NEXTN", "mixed"},       {4, 0, "on", "auto", "prefill-first"}};
    for (const auto& one : cases) {
      SCOPED_TRACE(fmt::format("{}, {} ranks, {} drafts, {}, {}", model, one.num_ranks,
                               one.num_drafts, one.overlaps, one.algorithm));
      ServerSettings settings = settings_of(form, one.num_ranks);
      settings.parallel.dp_routing = "round-robin";
      settings.scheduler.overlap_schedule = one.overlaps;
      settings.scheduler.prefill_policy = one.prefill;
      settings.scheduler.chunked_prefill_size = 32;
      settings.speculation = {.algorithm = one.algorithm, .num_steps = one.num_drafts};
      CallClock clock;
      Service service({.settings = settings, .clock = &clock, .stall_timeout = kPatience});
      ASSERT_TRUE(service.works());
      EXPECT_EQ(service.engine().info().speculation.algorithm, one.algorithm);
      std::mt19937 random(3);
      std::vector<RequestId> ids;
      for (const RequestInput& input : inputs) {
        ids.push_back(*service.submit(input));
        if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 8));
      }
      ASSERT_TRUE(service.read_all());
      for (size_t i = 0; i < ids.size(); ++i) {
        SCOPED_TRACE(i);
        ASSERT_NO_FATAL_FAILURE(expect_same(service.answer(ids[i]), want[i]));
      }
      service.engine().stop();
      const EngineStats stats = service.engine().stats();
      if (one.overlaps == std::string_view("on")) {
        EXPECT_GT(stats.steps.num_overlapped, 0u);
        // A gate's drafts depend on the machine's speed.
        EXPECT_TRUE(one.num_drafts == 0 || stats.scheduler.num_verified_total > 20);
      }
      for (const RankStats& rank : stats.ranks) EXPECT_EQ(rank.scheduler.num_private_pages, 0);
    }
  }
  log::set_level(log::Level::info);
}

}  // namespace
}  // namespace hocket
