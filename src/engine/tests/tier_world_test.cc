// Tests the cache tier in virtual time: how long a prompt waits for its pages, how long a step
// copies delayed ones, and that random traffic over a store that is slow, loses pages or hangs gets
// the pages of its own tokens.
#include "engine/tests/tier_world.h"
#include "base/clock_testing.h"
#include "engine/rank_sessions.h"
#include "policy/scheduler/simulated_events_testing.h"

namespace hocket {
namespace {

using namespace testing;
using namespace std::chrono_literals;

// The default policy. Few large pages are read where that is faster than computing their tokens; a
// store that is slower is tried with one prompt, and then left out.
TEST_F(TierWorldTest, LargePagesAreReadWhereThatIsFasterThanComputing) {
  TierWorld::Options options = with_pages(true, 8);
  options.tier.prefetch = parse_storage_prefetch("timeout").value();
  EXPECT_EQ(options.tier.prefetch, CacheTier::Options().prefetch) << "it is the default";
  fill(options, 1, 400);
  fill(options, 2, 400);
  const Duration computing = 128 * options.row_time;
  for (const bool is_fast : {true, false}) {
    SCOPED_TRACE(is_fast ? "fast" : "slow");
    store_->on_read = [&] { return clock_.advance(is_fast ? computing / 8 : 2 * computing), true; };
    options.tier.row_seconds = to_seconds(options.row_time);
    TierWorld world(options, store_, clock_);
    for (const int seed : {1, 2}) {
      ASSERT_TRUE(world.add(static_cast<uint64_t>(seed), tier_prompt(seed, 400)));
      ASSERT_TRUE(world.run_all());
    }
    const auto& first = world.ended().at(1);
    const auto& second = world.ended().at(2);
    EXPECT_EQ(first.cached, is_fast ? 384 : first.fetched);
    EXPECT_EQ(first.fetched, first.cached);
    // Readers may have begun the other pages before the first one told the speed.
    EXPECT_EQ(second.cached, is_fast ? 384 : 0);
    const CacheTierStats stats = world.tier().stats();
    EXPECT_EQ(stats.not_read_total[static_cast<size_t>(UnreadReason::expected_slower)] > 0,
              !is_fast);
    EXPECT_EQ(stats.left_out_total, ByUnwrittenReason<uint64_t>{});
  }
}

// The limit holds for the policy that waits until all pages are read, too.
TEST_F(TierWorldTest, AStoreThatHangsHoldsNoPromptBeyondTheLimit) {
  TierWorld::Options options = with_pages(false, 128);
  options.tier.prefetch = StoragePrefetch::wait_complete;
  fill(options, 1, 700);
  store_->hangs = true;
  TierWorld world(options, store_, clock_);
  ASSERT_TRUE(world.add(1, tier_prompt(1, 700)));
  EXPECT_FALSE(world.step());
  clock_.advance(PagePrefetch::kMaxHold - 1s);
  EXPECT_FALSE(world.step());
  EXPECT_EQ(world.scheduler().stats().num_held, 1);
  EXPECT_EQ(world.tier().stats().num_waiting, (ByPageWait<int>{1, 0, 0}));
  clock_.advance(1s);
  EXPECT_TRUE(world.step());
  EXPECT_EQ(world.tier().stats().num_waiting, ByPageWait<int>{});
  ASSERT_TRUE(world.run_all());
  EXPECT_EQ(world.ended().at(1).cached, 0);
  EXPECT_EQ(world.ended().at(1).finish, FinishReason::length);
  EXPECT_EQ(world.tier().stats().reads_given_up_total, 1u);
}

// Each page comes within every limit of a single read. Those that came until the limit are used.
TEST_F(TierWorldTest, AStoreThatTricklesHoldsNoPromptBeyondTheLimit) {
  TierWorld::Options options = with_pages(false, 128);
  options.tier.prefetch = StoragePrefetch::wait_complete;
  fill(options, 1, 700);
  std::atomic<int> turns{0};
  store_->on_read = [&] {
    clock_.advance(40s);
    // The world takes a step between two pages.
    const TimePoint end = RealClock().now() + 5s;
    for (const int seen = turns; turns < seen + 2 && RealClock().now() < end;)
      std::this_thread::sleep_for(1ms);
    return true;
  };
  TierWorld world(options, store_, clock_);
  const TimePoint begin = clock_.now();
  ASSERT_TRUE(world.add(1, tier_prompt(1, 700)));
  ASSERT_TRUE(world.run_until([&] { return ++turns, world.scheduler().idle(); }));
  EXPECT_LE(clock_.now() - begin, PagePrefetch::kMaxHold + 2 * 40s);
  const auto& ended = world.ended().at(1);
  EXPECT_EQ(ended.finish, FinishReason::length);
  EXPECT_GT(ended.cached, 0);
  EXPECT_LT(ended.cached, 672);
  EXPECT_EQ(world.tier().stats().reads_given_up_total, 1u);
}

// Four long prompts are being read. While nothing is computed, a short one does not wait for them
// much longer than computing it takes.
TEST_F(TierWorldTest, AnIdleEngineComputesAPromptWhoseTurnIsLate) {
  TierWorld::Options options = with_pages(false, 512);
  for (int seed = 1; seed <= 5; ++seed) fill(options, seed, seed < 5 ? 2048 : 320);
  options.tier.row_seconds = to_seconds(options.row_time);
  std::atomic<int> num_reading{0};
  std::atomic<bool> may_end{false};
  store_->on_read = [&] {
    for (++num_reading; !may_end;) std::this_thread::sleep_for(1ms);
    return true;
  };
  TierWorld world(options, store_, clock_);
  for (const uint64_t id : {1, 2, 3, 4})
    ASSERT_TRUE(world.add(id, tier_prompt(static_cast<int>(id), 2048)));
  ASSERT_TRUE(world.wait_until([&] { return num_reading == 4; }));
  ASSERT_TRUE(world.add(5, tier_prompt(5, 320)));
  clock_.advance(500ms);
  EXPECT_FALSE(world.step());
  clock_.advance(140ms);
  EXPECT_TRUE(world.step()) << "twice the time of 320 rows";
  EXPECT_EQ(world.scheduler().stats().num_held, 4);
  may_end = true;
  ASSERT_TRUE(world.wait_until([&] { return world.tier().has_read_pages(); }));
  ASSERT_TRUE(world.run_all());
  EXPECT_EQ(world.ended().at(5).cached, 0);
  EXPECT_GT(world.ended().at(1).cached, 0);
}

// In mode auto prompts count that have to be computed, not those that come from a store.
TEST_F(TierWorldTest, APromptThatIsReadIsNoLoad) {
  TierWorld::Options options = with_pages(false, 128);
  options.tier.prefetch = StoragePrefetch::wait_complete;
  fill(options, 1, 704);
  for (const bool is_there : {true, false}) {
    SCOPED_TRACE(is_there ? "read" : "lost");
    store_->on_read = [is_there] { return is_there; };
    options.tier.row_seconds = to_seconds(options.row_time);
    options.tier.role = std::make_shared<PrefillRole>(PrefillRole::Options{
        .mode = Disaggregation::automatic, .can_prefill = true, .can_decode = true});
    TierWorld world(options, store_, clock_);
    ASSERT_TRUE(world.add(1, tier_prompt(2, 40), 400));
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(world.step());
    EXPECT_FALSE(options.tier.role->sends_prompts());
    ASSERT_TRUE(world.add(2, tier_prompt(1, 704)));
    ASSERT_TRUE(world.wait_until([&] { return world.tier().has_read_pages(); }));
    ASSERT_TRUE(world.run_until([&] { return world.ended().contains(2); }));
    EXPECT_EQ(world.ended().at(2).fetched, is_there ? 672 : 0);
    EXPECT_EQ(options.tier.role->sends_prompts(), !is_there);
    world.abort(1);
    ASSERT_TRUE(world.run_all());
  }
}

// The look at the stores counts as a use of the page, and takes time of the engine's thread.
TEST_F(TierWorldTest, EachPageIsLookedForOnce) {
  std::atomic<int> num_looks{0};
  store_->on_look = [&] { ++num_looks; };
  TierWorld world(with_pages(false, 64), store_, clock_);
  ASSERT_TRUE(world.add(1, tier_prompt(1, 8 * 32)));
  ASSERT_TRUE(world.run_all());
  ASSERT_TRUE(world.wait_until([&] { return store_->size() == 8; }));
  EXPECT_EQ(num_looks, 8);
}

// Pages that found no buffer are copied one a step here, where looking for a page takes longer than
// the share of a step that copying may have. All of them are written in the end.
TEST_F(TierWorldTest, DelayedPagesTakeALimitedPartOfEachStep) {
  TierWorld::Options options = with_pages(true, 12);
  store_->holds_writes = true;
  TierWorld world(options, store_, clock_);
  constexpr size_t kPages = TierBuffers::kMinPages + 4;
  ASSERT_TRUE(world.add(1, tier_prompt(1, kPages * 128)));
  ASSERT_TRUE(world.run_all());
  store_->holds_writes = false;
  store_->on_look = [this] { clock_.advance(1s); };
  for (size_t left = 4; left > 0; --left) {
    ASSERT_TRUE(world.wait_until(
        [&] { return store_->size() == kPages - left && world.tier().has_delayed_pages(); }));
    EXPECT_FALSE(world.step());
  }
  EXPECT_TRUE(world.wait_until([&] { return store_->size() == kPages; }));
  EXPECT_EQ(world.tier().stats().num_left_out(), 0u);
}

// Nothing else needs the thread of an idle engine, so there one look takes more than a page.
TEST_F(TierWorldTest, AnIdleEngineCopiesDelayedPagesForLonger) {
  store_->holds_writes = true;
  TierWorld world(with_pages(true, 12), store_, clock_);
  constexpr size_t kPages = TierBuffers::kMinPages + 4;
  ASSERT_TRUE(world.add(1, tier_prompt(1, kPages * 128)));
  ASSERT_TRUE(world.run_all());
  EXPECT_FALSE(world.step());
  store_->on_look = [this] { clock_.advance(1ms); };
  store_->holds_writes = false;
  // Buffers get free one by one or together. With the share of a step, each page takes one look.
  int num_looks = 0;
  while (store_->size() < kPages && num_looks < 8) {
    ASSERT_TRUE(world.wait_until(
        [&] { return store_->size() == kPages || world.tier().has_delayed_pages(); }));
    if (store_->size() == kPages) break;
    ++num_looks;
    EXPECT_FALSE(world.step());
  }
  EXPECT_TRUE(world.wait_until([&] { return store_->size() == kPages; }));
  EXPECT_LT(num_looks, 4);
}

// A long request does not delay a later one: each step copies a page here, for one after the
// other.
TEST_F(TierWorldTest, RequestsWithDelayedPagesHaveTurns) {
  const TierWorld::Options options = with_pages(true, 14);
  store_->holds_writes = true;
  TierWorld world(options, store_, clock_);
  constexpr size_t kPages = TierBuffers::kMinPages + 4;
  std::vector<PageKey> keys[2];
  for (const int i : {0, 1}) {
    const auto prompt = tier_prompt(i, (i == 0 ? kPages : 4) * 128);
    PageKeys(options.tier.form, 128).append_to({}, prompt, keys[i]);
    ASSERT_TRUE(world.add(static_cast<uint64_t>(i), prompt));
    ASSERT_TRUE(world.run_all());
  }
  store_->holds_writes = false;
  store_->on_look = [this] { clock_.advance(1s); };
  for (size_t num_copied = 0; num_copied < 4; ++num_copied) {
    const size_t want = TierBuffers::kMinPages + num_copied;
    ASSERT_TRUE(world.wait_until(
        [&] { return store_->size() == want && world.tier().has_delayed_pages(); }));
    EXPECT_FALSE(world.step());
  }
  ASSERT_TRUE(world.wait_until([&] { return store_->size() == TierBuffers::kMinPages + 4; }));
  const auto num_there = [&](int i) {
    const auto there = store_->exist(keys[i]).value();
    return std::ranges::count(there, true);
  };
  EXPECT_EQ(num_there(0), TierBuffers::kMinPages + 2);
  EXPECT_EQ(num_there(1), 2);
}

// A rank may begin with a restore late, since a step was in flight, and a page takes 10 s here. The
// client gets an answer all the same, with the pages that were read.
TEST_F(TierWorldTest, ARestoreIsAnsweredBeforeItsClientLeaves) {
  const TierWorld::Options options = with_pages(false, 64);
  fill(options, 1, 640);
  TierWorld world(options, store_, clock_);
  store_->on_read = [&] { return clock_.advance(10s), true; };
  SessionCommand order{.action = SessionAction::restore,
                       .session = {1, 2},
                       .tokens = {.name_space = {}, .tokens = tier_prompt(1, 640)},
                       .deadline = clock_.now() + Engine::kSessionWait};
  const TimePoint deadline = order.deadline;
  auto answer = order.answer.get_future();
  clock_.advance(25s);
  RankSessions sessions(world.scheduler(), &world.tier(), 32, clock_);
  sessions.carry_out(order);
  ASSERT_TRUE(world.run_until([&] { return answer.wait_for(0s) == std::future_status::ready; }));
  EXPECT_LT(clock_.now(), deadline);
  EXPECT_EQ(answer.get().value().kept.tokens.size(), 3u * 32);
}

// A store that is away takes nothing from the other one.
class TwoStoresTest : public testing::FolderTest {
 protected:
  static constexpr size_t kPages = 7;  // so few tokens are not looked for in stores
  void start(StorageWrites writes) {
    files_ = std::make_shared<FileStore>(std::shared_ptr(PageFiles::open(folder_).value()),
                                         FileStore::calls_for(folder_));
    options_.tier.files = files_;
    options_.tier.writes = writes;
    world_ = std::make_unique<TierWorld>(options_, store_, clock_);
    PageKeys(options_.tier.form, 32).append_to({}, prompt_, keys_);
  }
  int64_t in_files() const { return std::ranges::count(files_->exist(keys_).value(), true); }
  uint64_t left_out(UnwrittenReason why) const {
    return world_->tier().stats().left_out_total[static_cast<size_t>(why)];
  }

  FakeClock clock_;
  TierWorld::Options options_ = with_pages(false, 64);
  const std::vector<TokenId> prompt_ = tier_prompt(1, kPages * 32);
  const std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  std::shared_ptr<FileStore> files_;
  std::unique_ptr<TierWorld> world_;
  std::vector<PageKey> keys_;
};

TEST_F(TwoStoresTest, PagesThatLackInTheStoreThatIsAwayHoldUpNoLaterOnes) {
  start(StorageWrites::write_through);
  const std::vector<std::byte> page(static_cast<size_t>(world_->page_bytes()));
  const PageStore::Page first{.key = keys_[0], .bytes = page};
  ASSERT_EQ(files_->put({&first, 1}, [] { return false; }).value_or(0), 1u);
  store_->leave();
  ASSERT_TRUE(world_->add(1, prompt_));
  ASSERT_TRUE(world_->run_all());
  EXPECT_TRUE(world_->wait_until([&] { return in_files() == int64_t{kPages}; }));
  EXPECT_EQ(left_out(UnwrittenReason::store_away), kPages);
}

// Both stores begin to refuse between two looks at them, so the save gets its answer without pages.
TEST_F(TwoStoresTest, ASaveEndsIfStoresRefuseMeanwhile) {
  start(StorageWrites::write_through_selective);
  ASSERT_TRUE(world_->add(1, prompt_));
  ASSERT_TRUE(world_->run_all());
  ASSERT_EQ(in_files(), 0);
  store_->on_look = [this] { files_->pause_writes(), store_->leave(); };
  std::optional<bool> saved;
  std::atomic<bool> is_done{false};
  world_->tier().save({.name_space = {}, .tokens = prompt_}, world_->scheduler(),
                      [&](int num_pages, bool whole) {
                        EXPECT_EQ(num_pages, 0);
                        saved = whole;
                        is_done = true;
                      });
  EXPECT_TRUE(world_->run_until([&] { return is_done.load(); }));
  EXPECT_EQ(saved, false);
}

// A writer that takes no further order answers at once, without a look at its store.
TEST(PageWriterTest, ASaveBeyondTheQueueIsAnswered) {
  PageWriter writer({.files = nullptr, .redis = std::make_shared<MemoryStore>(), .prefills = {}},
                    TransferBuffers::allocate({.page_bytes = 1 << 20}).value());
  int num_refused = 0;  // its thread does not run, so no other is answered
  for (int i = 0; i < 2000; ++i)
    writer.end({}, [&](bool all_written) { num_refused += all_written ? 0 : 1; });
  EXPECT_GT(num_refused, 0);
  EXPECT_LT(num_refused, 2000);
}

using TierSimulationTest = TierWorldTest;  // `./hocket test simulation` sets its seeds

// Random traffic of prompts that share beginnings, over a pool that holds few of them, with aborts
// and with a store that loses pages, is slow or hangs for a while. TierWorld compares every page
// that a request gets; each request ends, and the pool is whole. How many of them got pages from
// the store depends on the threads' turns, so a second world reads what the first one wrote.
TEST_F(TierSimulationTest, RandomTrafficGetsThePagesOfItsOwnTokens) {
  constexpr uint64_t kSeeds = 60, kRequests = 24;
  const auto [first_seed, num_seeds] = seeds_wanted(kSeeds);
  uint64_t num_fetched = 0, num_given_up = 0;
  for (uint64_t seed = first_seed; seed < first_seed + num_seeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(static_cast<uint32_t>(seed));
    const auto draw = [&](uint32_t one_of) { return random() % one_of == 0; };
    TierWorld::Options options = with_pages(false, 48);
    options.tier.prefetch = static_cast<StoragePrefetch>(seed % 3);
    const auto store = std::make_shared<MemoryStore>();
    std::mt19937 losses(static_cast<uint32_t>(seed + 1));  // the reader's
    store->on_read = [&, rate = 1 + random() % 60] {
      clock_.advance(std::chrono::milliseconds(losses() % 200));
      return losses() % rate != 0 || rate == 1;
    };
    auto world = std::make_unique<TierWorld>(options, store, clock_);
    for (uint64_t id = 0; id < kRequests; ++id) {
      std::vector<TokenId> prompt = tier_prompt(static_cast<int>(random() % 5), 900);
      prompt.resize(300 + random() % 600);
      for (const TokenId token :
           tier_prompt(static_cast<int>(random()), static_cast<int>(random() % 64)))
        prompt.push_back(token);
      ASSERT_TRUE(world->add(id, std::move(prompt), 1 + static_cast<int>(random() % 40)));
      for (uint32_t steps = random() % 8; steps > 0; --steps) world->step();
      store->hangs = draw(6);
      if (draw(8)) world->abort(id - random() % (id + 1));
      if (draw(4)) world->scheduler().check_integrity();
    }
    ASSERT_TRUE(world->run_all(1s));
    store->hangs = false;
    EXPECT_EQ(world->ended().size(), kRequests);
    world->scheduler().check_integrity();
    for (const auto& [id, ended] : world->ended()) EXPECT_LE(ended.fetched, ended.cached);
    num_given_up += world->tier().stats().reads_given_up_total;
    world.reset();  // writes what is left

    store->on_read = [] { return true; };
    options.tier.prefetch = StoragePrefetch::wait_complete;
    TierWorld reader(options, store, clock_);
    for (int prompt = 0; prompt < 5; ++prompt) {
      ASSERT_TRUE(reader.add(static_cast<uint64_t>(prompt), tier_prompt(prompt, 900)));
      ASSERT_TRUE(reader.run_all());
      num_fetched +=
          static_cast<uint64_t>(reader.ended().at(static_cast<uint64_t>(prompt)).fetched);
    }
    if (HasFatalFailure() || HasNonfatalFailure()) break;
  }
  if (num_seeds < kSeeds) return;  // a few seeds need not show all
  EXPECT_GT(num_fetched, 1000 * num_seeds / kSeeds);
  EXPECT_GT(num_given_up, 0u);
}

}  // namespace
}  // namespace hocket
