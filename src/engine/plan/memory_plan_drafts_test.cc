// Tests what memory plans leave for drafts.
#include <gtest/gtest.h>

#include "engine/plan/plan_case_testing.h"
#include "policy/scheduler/batch.h"

namespace hocket {
namespace {

using testing::PlanCase;

// Grammars that follow drafts, and look-up in the text, have their memory before pages do.
TEST(MemoryPlan, DraftsNeedMemoryForGrammarsAndLookUp) {
  PlanCase c;
  const auto without = c.plan();
  EXPECT_EQ(without->draft_bytes, 0);
  c.settings.speculation.algorithm = "NGRAM";
  constexpr int64_t kLookUp = int64_t{kDefaultRunningRequests} * (96 << 10);
  const auto with = c.plan();
  EXPECT_EQ(with->draft_bytes, kDraftChecksBytes + kLookUp);
  EXPECT_GE(with->work_bytes, without->work_bytes + with->draft_bytes);
  EXPECT_LT(with->fitting_pages, without->fitting_pages);
  c.settings.model.grammar_backend = "none";
  EXPECT_EQ(c.plan()->draft_bytes, kLookUp);
  c.settings.model.context_length = 4096;  // a request has no more tokens
  EXPECT_EQ(c.plan()->draft_bytes, kLookUp / 4);
  c.settings.speculation.algorithm = "NEXTN";
  EXPECT_EQ(c.plan()->draft_bytes, 0);
}

// All answers find the rows of their drafts where few requests may run.
TEST(MemoryPlan, DraftsNeedRows) {
  PlanCase c;
  c.settings.speculation.algorithm = "NGRAM";
  EXPECT_EQ(c.plan()->max_decode_rows, kMaxDraftedRows);
  c.settings.memory.max_running_requests = 2;
  EXPECT_EQ(c.plan()->max_decode_rows, 2 * (1 + kMaxDrafts));
  const int64_t without = PlanCase{}.plan()->work.max_rows - kDefaultRunningRequests;
  EXPECT_EQ(c.plan()->work.max_rows, without + 2 * (1 + kMaxDrafts));
  c.settings.speculation.num_steps = 3;
  EXPECT_EQ(c.plan()->max_decode_rows, 2 * 4);
  c.settings.scheduler.overlap_schedule = "on";
  EXPECT_EQ(c.plan()->max_decode_rows, 2 * 4);
  c.settings.memory.max_running_requests = 100;
  EXPECT_EQ(c.plan()->max_decode_rows, kMaxDraftedRows);
  c.settings.memory.max_running_requests = 500;
  EXPECT_EQ(c.plan()->max_decode_rows, 500);
  c.settings.memory.max_running_requests = 2;
  c.settings.speculation.algorithm = "NEXTN";
  const auto by_module = c.plan();
  ASSERT_TRUE(by_module.has_value());
  EXPECT_EQ(by_module->max_decode_rows, 2 * 4);
  EXPECT_TRUE(by_module->changes.empty());
}

// Either flag that says how many drafts there are is named if there are fewer.
TEST(MemoryPlan, FewerDraftsThanAskedForAreAChange) {
  PlanCase c;
  for (const int num_modules : {1, 3})
    for (const bool by_tokens : {false, true}) {
      c.num_local_modules = num_modules;
      c.settings.speculation = {.algorithm = "NEXTN"};
      (by_tokens ? c.settings.speculation.num_draft_tokens : c.settings.speculation.num_steps) = 5;
      const auto plan = c.plan();
      ASSERT_TRUE(plan.has_value()) << describe(plan.error());
      EXPECT_EQ(plan->max_drafts, num_modules);
      ASSERT_EQ(plan->changes.size(), 1u);
      EXPECT_EQ(plan->changes[0].flag,
                by_tokens ? "--speculative-num-draft-tokens" : "--speculative-num-steps");
      EXPECT_EQ(plan->changes[0].from, "5");
      EXPECT_EQ(plan->changes[0].to, std::to_string(num_modules + (by_tokens ? 1 : 0)));
    }
  c.settings.speculation = {.algorithm = "NEXTN", .num_draft_tokens = 2};
  EXPECT_TRUE(c.plan()->changes.empty());
}

// Each module that is loaded has its keys and values in every page, and as many are loaded as an
// answer can have drafts. Rows that are joined once more are kept for each request.
TEST(MemoryPlan, SeveralModulesHaveKeysOfTheirOwn) {
  ServerSettings settings;
  settings.speculation.algorithm = "none";
  const auto choose = [&](int num_drafts) {
    if (num_drafts > 0) settings.speculation = {.algorithm = "NEXTN", .num_steps = num_drafts};
    return testing::choice_of("golden/mimo_v2_flash_mtp", settings);
  };
  const int64_t without = choose(0).kv_full_page_bytes(32);
  for (const int num_drafts : {1, 2, 3, 4}) {
    const ModelChoice choice = choose(num_drafts);
    const int num_modules = std::min(num_drafts, 3);
    EXPECT_EQ(choice.model.num_mtp_loaded, num_modules);
    EXPECT_EQ(choice.kv_full_page_bytes(32), without + num_modules * choice.module_page_bytes(32));
    MemoryPlanInput input = memory_plan_input(settings, choice);
    input.total_bytes = input.available_bytes = testing::kGb;
    const auto plan = size_memory(input);
    ASSERT_TRUE(plan.has_value()) << describe(plan.error());
    EXPECT_EQ(plan->work.max_kept_rows, kDefaultRunningRequests * (num_modules - 1));
    EXPECT_EQ(plan->num_spare_pages, 0);
  }
}

// Chains of guesses may continue where a request has no page yet.
TEST(MemoryPlan, ModulesNeedSparePages) {
  PlanCase c;
  c.module_page_bytes = 50'000;
  EXPECT_EQ(c.plan()->num_spare_pages, 0);
  c.settings.speculation = {.algorithm = "NEXTN", .num_steps = 1};
  EXPECT_EQ(c.plan()->num_spare_pages, 0);
  c.settings.speculation.num_steps = 4;
  c.settings.memory.page_size = 2;
  const auto plan = c.plan();
  ASSERT_TRUE(plan.has_value()) << describe(plan.error());
  EXPECT_EQ(plan->num_spare_pages, 2 * kDefaultRunningRequests);
  EXPECT_EQ(plan->kv_bytes, plan->num_pages * int64_t{1'000'000} + plan->num_spare_pages * 50'000);
  EXPECT_EQ(plan->window_bytes, 0);
}

}  // namespace
}  // namespace hocket
