// Tests what memory plans leave for drafts.
#include <gtest/gtest.h>

#include "engine/plan/plan_case_testing.h"
#include "policy/scheduler/batch.h"

namespace hocket {
namespace {

using testing::PlanCase;

// Grammars that follow drafts have their memory before pages do.
TEST(MemoryPlan, DraftsNeedMemoryForGrammars) {
  PlanCase c;
  const auto without = c.plan();
  EXPECT_EQ(without->draft_bytes, 0);
  c.settings.speculation.algorithm = "NGRAM";
  const auto with = c.plan();
  EXPECT_EQ(with->draft_bytes, kDraftChecksBytes);
  EXPECT_GE(with->work_bytes, without->work_bytes + kDraftChecksBytes);
  EXPECT_LT(with->fitting_pages, without->fitting_pages);
  c.settings.model.grammar_backend = "none";
  EXPECT_EQ(c.plan()->draft_bytes, 0);
}

// All answers find the rows of their drafts where few requests may run.
TEST(MemoryPlan, DraftsNeedRows) {
  PlanCase c;
  c.settings.speculation.algorithm = "NGRAM";
  EXPECT_EQ(c.plan()->max_answer_rows, kDefaultRunningRequests);
  c.settings.memory.max_running_requests = 2;
  EXPECT_EQ(c.plan()->max_answer_rows, 2 * (1 + kMaxDrafts));
  const int64_t without = PlanCase{}.plan()->work.max_rows - kDefaultRunningRequests;
  EXPECT_EQ(c.plan()->work.max_rows, without + 2 * (1 + kMaxDrafts));
  c.settings.speculation.num_steps = 3;
  EXPECT_EQ(c.plan()->max_answer_rows, 2 * 4);
  c.settings.scheduler.overlap_schedule = "on";
  EXPECT_EQ(c.plan()->max_answer_rows, 2 * 4);
  c.settings.memory.max_running_requests = 100;
  EXPECT_EQ(c.plan()->max_answer_rows, kMaxDraftedRows);
  c.settings.memory.max_running_requests = 500;
  EXPECT_EQ(c.plan()->max_answer_rows, 500);
  c.settings.memory.max_running_requests = 2;
  c.settings.speculation.algorithm = "NEXTN";
  const auto off = c.plan();
  ASSERT_TRUE(off.has_value());
  EXPECT_EQ(off->max_drafts, 0);
  EXPECT_EQ(off->max_answer_rows, 2);
  ASSERT_EQ(off->changes.size(), 1u);
  EXPECT_EQ(off->changes[0].flag, "--speculative-algorithm");
}

// Chains of guesses may go on where a request has no page yet.
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
