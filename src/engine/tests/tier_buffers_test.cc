// Tests the buffers of prefixes on their way to stores: they take what is planned for them, and
// what finds none waits for one.
#include "engine/cache_tier_setup.h"
#include "engine/rank_setup.h"
#include "engine/tests/stored_pages.h"

namespace hocket {
namespace {

using namespace testing;

class TierBuffersTest : public testing::StoredPagesTest {};

TEST_F(TierBuffersTest, ThePlanHoldsTheBuffersOfEveryKindOfCache) {
  for (const Form& form : {kMoe, kMla, kDelta, kKimiLinearInt8, kInt8Kv, kMimo, kGptOss}) {
    SCOPED_TRACE(form.name);
    ServerSettings settings = plain(&form);
    const auto load = [&] { return load_ranks({.settings = settings}).value(); };
    const MemoryPlan without = load()[0]->plan();
    EXPECT_EQ(without.tier_bytes, 0);
    settings.memory.kv_cache_dir = folder_.string();
    const auto runners = load();
    const MemoryPlan& plan = runners[0]->plan();
    const TierBuffers buffers{.page_bytes = runners[0]->pages().page_bytes(),
                              .record_bytes = border_states_of(*runners[0]).bytes()};
    EXPECT_EQ(plan.tier_bytes, buffers.bytes());
    EXPECT_EQ(plan.work_bytes, without.work_bytes + buffers.bytes());
  }
}

// A prompt that is computed in one step leaves more states than there are buffers. The last ones
// wait for a buffer, so the same prompt goes on behind them.
TEST_F(TierBuffersTest, TheLastStateOfAPromptWaitsForABuffer) {
  ServerSettings computing = plain(&kDelta);
  computing.scheduler.chunked_prefill_size = -1;
  const RequestInput input = question(3, 1000);
  const Answer want = computed(computing, input);
  ServerSettings s = computing;
  s.memory.kv_cache_dir = folder_.string();
  s.memory.hicache_storage_prefetch_policy = "wait_complete";
  {
    Service service(Engine::Options{.settings = s, .max_record_bytes = 1});
    expect_same(ask(service, input), want);
    // All pages, and more states than there are buffers.
    EXPECT_TRUE(service.read_until([&] {
      return service.engine().stats().tier.value().pages_written_total >= 1000 / 32 + 3;
    }));
  }
  Service again(s);
  const Answer got = ask(again, input);
  expect_same(got, want);
  EXPECT_GE(got.summary.cached_tokens, 960);
}

// More pages than there are buffers become known in one step. All of them are read after a restart.
TEST_F(TierBuffersTest, PagesThatFindNoBufferAreWrittenLater) {
  ServerSettings computing = plain();
  computing.memory.page_size = 1;
  computing.scheduler.chunked_prefill_size = -1;
  const RequestInput input = question(1, 1800);
  const Answer want = computed(computing, input);
  ServerSettings s = computing;
  s.memory.kv_cache_dir = folder_.string();
  s.memory.hicache_storage_prefetch_policy = "wait_complete";
  {
    Service service(s);
    expect_same(ask(service, input), want);
    const auto tier = [&] { return service.engine().stats().tier.value(); };
    EXPECT_TRUE(service.read_until([&] { return tier().pages_written_total >= 1809; }));
    EXPECT_EQ(tier().all_left_out(), 0u);
  }
  Service again(s);
  const Answer got = ask(again, input);
  expect_same(got, want);
  EXPECT_EQ(got.summary.cached_tokens, 1799);
}

// Few records are large: two of them travel whatever they take.
TEST(TierBuffers, LargeRecordsTakeMore) {
  constexpr int64_t kRecord = int64_t{1} << 30;
  const TierBuffers large{.page_bytes = 1 << 20, .record_bytes = kRecord};
  EXPECT_EQ(large.num_records(), 2);
  EXPECT_EQ(large.bytes(), 2 * (TierBuffers::kBytes + 2 * kRecord));
  const TierBuffers none{.page_bytes = 1 << 10};
  EXPECT_EQ(none.num_pages(), 1024);
  EXPECT_EQ(none.bytes(), 2 * ((1 << 20) + TierBuffers::kMaxRecords));
}

}  // namespace
}  // namespace hocket
