// Tests the rows of the model's own modules in pages that come back from files.
#include "engine/tests/stored_pages.h"

namespace hocket {
namespace {

using namespace testing;

using StoredModulesTest = testing::StoredPagesTest;

// The pages that come back hold rows of the modules, so these draft at once. Where there are
// several, they compute rows of such pages again behind the next chunk.
TEST_F(StoredModulesTest, DraftBehindAPrefixOfBeforeARestart) {
  for (const Form& form : {kBundled, kMimo}) {
    SCOPED_TRACE(form.name);
    RequestInput input = question(1);
    input.sampling.max_new_tokens = 30;
    const Answer want = computed(plain(&form), input);
    ServerSettings drafting = plain(&form);
    drafting.memory.kv_cache_dir = (folder_ / form.name).string();
    drafting.memory.hicache_storage_prefetch_policy = "wait_complete";
    drafting.speculation = {.algorithm = "NEXTN", .num_steps = 2};
    for (const bool again : {false, true}) {
      SCOPED_TRACE(again);
      // The prompt's chunks overlap, and then the answer has drafts.
      drafting.scheduler.overlap_schedule = again ? "off" : "on";
      Service service(drafting);
      ASSERT_TRUE(service.works());
      const Answer got = ask(service, input);
      expect_same(got, want);
      EXPECT_EQ(got.summary.cached_tokens > 0, again);
      EXPECT_EQ(service.engine().stats().steps.num_overlapped > 0, !again);
      EXPECT_GT(service.engine().stats().scheduler.num_verified_total, 5u);
    }
  }
}

}  // namespace
}  // namespace hocket
