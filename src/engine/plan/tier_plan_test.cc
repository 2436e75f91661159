// Tests that the plan holds the memory of the radix tree and of the indexes of stores.
#include "engine/plan/tier_plan.h"

#include <gtest/gtest.h>

#include "compute/kv/page_files.h"
#include "engine/plan/folder_limit.h"
#include "engine/plan/plan_case_testing.h"
#include "policy/cache/tree_bytes.h"

namespace hocket::testing {
namespace {

// Fills the memory with pages, as if any number of tokens were of use.
PlanCase filling() {
  PlanCase c;
  c.settings.memory.max_running_requests = 4096;
  c.settings.model.context_length = 32768;
  return c;
}

TEST(TierPlan, TheTreeAndItsPagesShareTheBudget) {
  for (const bool has_events : {false, true}) {
    PlanCase c = filling();
    c.settings.scheduler.kv_events = has_events;
    const auto plan = c.plan();
    ASSERT_TRUE(plan.has_value()) << describe(plan.error());
    const int64_t tree =
        max_tree_bytes({.num_pages = plan->num_pages, .page_tokens = 32, .has_events = has_events});
    EXPECT_EQ(plan->tree_bytes, tree);
    EXPECT_EQ(plan->index_bytes, tree) << "there are no stores";
    EXPECT_LE(used(*plan), plan->budget_bytes);
    EXPECT_GT(used(*plan) + c.page_bytes + tree / plan->num_pages, plan->budget_bytes);
  }
}

TEST(TierPlan, WithoutAPrefixCacheThereIsNoTree) {
  PlanCase c = filling();
  c.settings.scheduler.disable_radix_cache = true;
  const auto plan = c.plan();
  ASSERT_TRUE(plan.has_value()) << describe(plan.error());
  EXPECT_EQ(plan->index_bytes, 0);
}

// Files of other forms may be smaller, so there is room for some in any case.
TEST(TierPlan, TheIndexOfFilesHasRoomForAllThatTheirSizeAllows) {
  PlanCase c = filling();
  c.settings.memory.kv_cache_dir = "/nowhere";
  const int64_t file = c.page_bytes + 80;
  const int64_t budget = c.plan().value().budget_bytes;
  const std::pair<int64_t, int64_t> kSizes[] = {
      {100 * file, kMinIndexedFiles},
      {500'000 * file, 500'001},
      {kUnknownDisk, budget / kPartOfIndex / PageFiles::index_bytes(1)}};
  for (const auto& [bytes, files] : kSizes) {
    c.max_stored_bytes = bytes;
    const auto plan = c.plan();
    ASSERT_TRUE(plan.has_value()) << describe(plan.error());
    EXPECT_EQ(plan->max_stored_files, files);
    EXPECT_EQ(plan->index_bytes - plan->tree_bytes, PageFiles::index_bytes(files));
    EXPECT_LE(used(*plan), plan->budget_bytes);
    EXPECT_GT(used(*plan) + c.page_bytes + plan->tree_bytes / plan->num_pages, plan->budget_bytes);
  }
}

// The index of 4 million files would take more than all that the weights leave.
TEST(TierPlan, ALargeDiskTakesNoModelFromASmallHost) {
  PlanCase c;
  c.available_bytes = 1'800'000'000;
  c.max_stored_bytes = kUnknownDisk;
  c.page_bytes = 32768;
  c.settings.memory.kv_cache_dir = "/nowhere";
  const auto plan = c.plan();
  ASSERT_TRUE(plan.has_value()) << describe(plan.error());
  EXPECT_GT(plan->max_stored_files, kMinIndexedFiles);
  EXPECT_LE(PageFiles::index_bytes(plan->max_stored_files), plan->budget_bytes / kPartOfIndex);
  c.weight_bytes = c.available_bytes;
  const auto refused = c.plan();
  ASSERT_FALSE(refused.has_value());
  EXPECT_TRUE(refused.error().fix.contains("--kv-cache-dir-gb 2.152 ")) << refused.error().fix;
  c.max_stored_bytes = 2'152'000'000;  // the limit of that fix
  EXPECT_FALSE(c.plan().error().fix.contains("--kv-cache-dir-gb")) << "no index is smaller";
  c.max_stored_bytes = 1;
  EXPECT_FALSE(c.plan().error().fix.contains("--kv-cache-dir-gb"));
}

TEST(TierPlan, TheRanksOfAProcessPlanTheIndexesOfStoresOnce) {
  PlanCase c = filling();
  c.settings.memory.kv_cache_dir = "/nowhere";
  c.settings.memory.kv_cache_store = "redis://127.0.0.1:6379";
  const auto indexes = [&](int ranks) {
    c.settings.parallel.ep_size = ranks;
    const auto plan = c.plan();
    EXPECT_TRUE(plan.has_value()) << describe(plan.error());
    return plan->index_bytes - plan->tree_bytes;
  };
  const int64_t of_one = indexes(1);
  EXPECT_GT(of_one, PageFiles::index_bytes(kMinIndexedFiles)) << "a Redis has keys, too";
  EXPECT_EQ(indexes(2), (of_one + 1) / 2);
}

}  // namespace
}  // namespace hocket::testing
