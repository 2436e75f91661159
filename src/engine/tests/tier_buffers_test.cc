// Tests the buffers of prefixes on their way to stores and peers: they take the memory that is
// planned for them, and a page that finds none waits for one.
#include "engine/rank_setup.h"
#include "engine/tests/stored_pages.h"
#include "engine/tier/cache_tier_setup.h"

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
                              .record_bytes = border_states_of(*runners[0]).bytes(),
                              .chunk_pages = chunk_pages(plan.chunk_tokens, plan.max_prefill_tokens,
                                                         settings.memory.page_size),
                              .has_files = true};
    EXPECT_GE(buffers.num_pages() * settings.memory.page_size, plan.chunk_tokens);
    EXPECT_EQ(plan.tier_bytes, buffers.bytes());
    EXPECT_EQ(plan.work_bytes, without.work_bytes + buffers.bytes());
    settings.peers.kv_cache_listen = "127.0.0.1:0";
    const auto serving = load();
    EXPECT_EQ(serving[0]->plan().tier_bytes, buffers.bytes() + buffers.served_bytes());
  }
}

TEST_F(TierBuffersTest, ThePlanHoldsTheLargestPageAndWindowOfAPeerForEachThreadThatReads) {
  for (const Form& form : {kMoe, kDelta, kMimo}) {
    SCOPED_TRACE(form.name);
    ServerSettings settings = plain(&form);
    settings.memory.kv_cache_dir = folder_.string();
    const int64_t without = load_ranks({.settings = settings}).value()[0]->plan().tier_bytes;
    settings.peers.kv_cache_peers = "127.0.0.1:1";
    const auto runners = load_ranks({.settings = settings}).value();
    int64_t bytes = runners[0]->pages().layout().with_tokens(128).page_bytes();
    const int64_t page_bytes = runners[0]->pages().page_bytes();
    // Three threads more than for files alone read files, too, two pages at once.
    const int64_t copies = 6 * std::max(page_bytes, border_states_of(*runners[0]).bytes());
    // A window of the model has fewer than 128 tokens.
    if (const PagePool* windows = runners[0]->windows())
      bytes += windows->layout().with_tokens(128).page_bytes();
    EXPECT_EQ(runners[0]->plan().tier_bytes - without, 4 * bytes + copies);
    // Two threads for each that computes hold a page of this service, too.
    settings.peers = {.disaggregation_mode = "decode",
                      .disaggregation_prefill_url = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"};
    const auto decoding = load_ranks({.settings = settings}).value();
    EXPECT_EQ(decoding[0]->plan().tier_bytes - without, 10 * bytes + 6 * page_bytes + copies);
  }
}

TEST_F(TierBuffersTest, TheRanksOfAProcessPlanTheBuffersForPeersOnce) {
  ServerSettings settings = plain(&kMoe);
  settings.parallel.ep_size = 2;
  settings.memory.kv_cache_dir = folder_.string();
  const auto planned = [&] {
    int64_t bytes = 0;
    const auto runners = load_ranks({.settings = settings}).value();
    for (const auto& runner : runners) bytes += runner->plan().tier_bytes;
    return bytes;
  };
  const int64_t alone = planned();
  settings.peers.kv_cache_listen = "127.0.0.1:0";
  const auto runners = load_ranks({.settings = settings}).value();
  const TierBuffers buffers{.page_bytes = runners[0]->pages().page_bytes(),
                            .record_bytes = border_states_of(*runners[0]).bytes()};
  EXPECT_EQ(planned() - alone, buffers.served_bytes());
}

// A prompt that is computed in one step leaves more states than there are buffers. The last ones
// wait for a buffer, so the same prompt continues behind them.
TEST_F(TierBuffersTest, TheLastStateOfAPromptWaitsForABuffer) {
  ServerSettings computing = plain(&kDelta);
  computing.scheduler.chunked_prefill_size = -1;
  const RequestInput input = question(3, 1000);
  const Answer want = computed(computing, input);
  ServerSettings s = computing;
  s.memory.kv_cache_dir = folder_.string();
  s.memory.hicache_storage_prefetch_policy = "wait_complete";
  {
    Service service(Engine::Options{.settings = s, .record_budget_bytes = 1});
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
    EXPECT_EQ(tier().num_left_out(), 0u);
  }
  Service again(s);
  const Answer got = ask(again, input);
  expect_same(got, want);
  EXPECT_EQ(got.summary.cached_tokens, 1799);
}

// Threads that read and write, and what they send to a Redis or got from it last.
TEST(TierBuffers, PagesOnTheirWayBesideBuffersArePlanned) {
  constexpr int64_t kPage = 1 << 10, kRecord = 1 << 20;
  const auto beside = [](TierBuffers sizes) {
    TierBuffers alone = sizes;
    alone.has_files = alone.has_redis = false;
    return sizes.bytes() - alone.bytes();
  };
  EXPECT_EQ(beside({.page_bytes = kPage, .has_files = true}), (2 + 1) * kPage);
  EXPECT_EQ(beside({.page_bytes = kPage, .peer_bytes = 1, .has_files = true}), (8 + 1) * kPage);
  EXPECT_EQ(beside({.page_bytes = kPage, .has_redis = true}), (4 + 2 + 5) * kPage);
  EXPECT_EQ(
      beside({.page_bytes = kPage, .record_bytes = kRecord, .has_files = true, .has_redis = true}),
      (8 + 1 + 2 + 5) * kRecord);
}

// At least two records travel, however large they are. The pages of a chunk all find a buffer, up
// to a limit.
TEST(TierBuffers, LargeRecordsAndChunksTakeMore) {
  constexpr int64_t kRecord = int64_t{1} << 30;
  const TierBuffers large{.page_bytes = 1 << 20, .record_bytes = kRecord};
  EXPECT_EQ(large.num_records(), 2);
  EXPECT_EQ(large.bytes(), 2 * (TierBuffers::kBytes + 2 * kRecord));
  constexpr int64_t kLargePage = int64_t{128} * 192 << 10;  // 128 tokens of 192 KiB
  const TierBuffers chunk{.page_bytes = kLargePage, .chunk_pages = chunk_pages(2048, 16384, 128)};
  EXPECT_EQ(chunk.num_pages(), 2048 / 128 + 1);
  const TierBuffers whole{.page_bytes = kLargePage, .chunk_pages = chunk_pages(-1, 16384, 128)};
  EXPECT_EQ(whole.num_pages(), TierBuffers::kMinPages);
  const TierBuffers huge{.page_bytes = kLargePage, .chunk_pages = chunk_pages(65536, 65536, 128)};
  EXPECT_EQ(huge.of_pages(), TierBuffers::kMaxChunkBytes / kLargePage * kLargePage);
  EXPECT_EQ(huge.num_served(), TierBuffers::kMinServed);
  const TierBuffers none{.page_bytes = 1 << 10};
  EXPECT_EQ(none.num_pages(), TierBuffers::kMaxPages);
  EXPECT_EQ(none.bytes(), 2 * ((1 << 20) + TierBuffers::kMaxRecords));
}

}  // namespace
}  // namespace hocket
