// Tests for which prompts pages are read, in virtual time: once for all that share them, and where
// that saves time; and how saved time is counted.
#include "engine/tests/tier_world.h"

namespace hocket {
namespace {

using namespace testing;
using namespace std::chrono_literals;

class TierReadsTest : public TierWorldTest {
 protected:
  static PageTierStats redis_of(TierWorld& world) {
    return world.tier().stats().tiers[static_cast<size_t>(PageTier::redis)];
  }
  // Reads wait from the one of that number on, until open() is called.
  void block_from(int number) {
    store_->on_read = [this, number] {
      const int mine = ++num_reading_;
      const TimePoint end = RealClock().now() + 20s;
      while (mine >= number && !is_open_ && RealClock().now() < end)
        std::this_thread::sleep_for(1ms);
      return true;
    };
  }
  void open() { is_open_ = true; }

  std::atomic<int> num_reading_{0};
  std::atomic<bool> is_open_{false};
};

// As the choices of one request, or agents with one text before their own.
TEST_F(TierReadsTest, PromptsWithOneBeginningReadItOnce) {
  TierWorld::Options options = with_pages(false, 128);
  options.tier.prefetch = StoragePrefetch::wait_complete;
  fill(options, 1, 1280);
  block_from(1);
  TierWorld world(options, store_, clock_);
  ASSERT_TRUE(world.add(1, tier_prompt(1, 640)));
  ASSERT_TRUE(world.add(2, tier_prompt(1, 640)));
  ASSERT_TRUE(world.add(3, tier_prompt(1, 1280)));
  EXPECT_EQ(world.tier().stats().num_waiting[static_cast<size_t>(PageWait::store)], 3);
  open();
  ASSERT_TRUE(world.run_all());
  for (const uint64_t id : {1, 2}) EXPECT_EQ(world.ended().at(id).cached, 608);
  EXPECT_EQ(world.ended().at(3).cached, 1248);
  EXPECT_EQ(world.ended().at(1).fetched, 608);
  EXPECT_EQ(world.ended().at(2).fetched, 0);
  EXPECT_EQ(redis_of(world).pages_read_total, 1248u / 32);
}

// The long one's other pages come later.
TEST_F(TierReadsTest, AShortPromptWaitsForItsPartOfALongOneAlone) {
  TierWorld::Options options = with_pages(false, 128);
  options.tier.prefetch = StoragePrefetch::wait_complete;
  fill(options, 1, 1280);
  block_from(22);
  TierWorld world(options, store_, clock_);
  ASSERT_TRUE(world.add(1, tier_prompt(1, 1280)));
  ASSERT_TRUE(world.wait_until([&] { return num_reading_ > 0; }));  // else the short one is first
  ASSERT_TRUE(world.add(2, tier_prompt(1, 640)));
  EXPECT_TRUE(world.run_until([&] { return world.ended().contains(2); }));
  EXPECT_FALSE(world.ended().contains(1));
  EXPECT_GE(world.ended().at(2).cached, 608);  // 639 if the long one's next page is there, too
  open();
  ASSERT_TRUE(world.run_all());
  EXPECT_EQ(world.ended().at(1).cached, 1248);
  EXPECT_EQ(redis_of(world).pages_read_total, 1248u / 32);
}

TEST_F(TierReadsTest, APromptWhoseReaderLeavesReadsItself) {
  TierWorld::Options options = with_pages(false, 128);
  options.tier.prefetch = StoragePrefetch::wait_complete;
  fill(options, 1, 640);
  block_from(1);
  TierWorld world(options, store_, clock_);
  for (const uint64_t id : {1, 2, 3}) ASSERT_TRUE(world.add(id, tier_prompt(1, 640)));
  ASSERT_TRUE(world.wait_until([&] { return num_reading_ == 1; }));
  world.abort(1);
  EXPECT_FALSE(world.step());
  open();
  ASSERT_TRUE(world.run_all());
  for (const uint64_t id : {2, 3}) EXPECT_EQ(world.ended().at(id).cached, 608);
  EXPECT_LE(redis_of(world).pages_read_total, 608u / 32 + 1);
}

// The store's speed is not known, then slow, then fast. Computing the 192 tokens takes 192 ms.
TEST_F(TierReadsTest, FewTokensAreReadOnceThatIsKnownToBeFaster) {
  TierWorld::Options options = with_pages(false, 64);
  fill(options, 1, 224);
  options.tier.row_seconds = to_seconds(options.row_time);
  const auto fetched = [&] {
    TierWorld world(options, store_, clock_);
    EXPECT_TRUE(world.add(1, tier_prompt(1, 224)));
    EXPECT_TRUE(world.run_all());
    return world.ended().at(1).fetched;
  };
  EXPECT_EQ(fetched(), 0);
  constexpr int64_t kBytes = 64'000'000;  // as many tell the speed
  store_->note_read(kBytes, 640s);        // the 98,304 bytes of these pages take 1 s
  EXPECT_EQ(fetched(), 0);
  for (int i = 0; i < 20; ++i) store_->note_read(kBytes, 1s);
  EXPECT_EQ(fetched(), 192);
}

// While others run, a prompt that waits for its pages misses a step. That of a short prompt takes
// 20 ms, a chunk of a long one 256 ms, which is longer than computing 192 tokens.
TEST_F(TierReadsTest, FewTokensAreComputedBesideLongSteps) {
  TierWorld::Options options = with_pages(false, 64);
  fill(options, 1, 224);
  store_->note_read(64'000'000, 1s);
  options.tier.row_seconds = to_seconds(options.row_time);
  for (const bool is_long : {false, true}) {
    SCOPED_TRACE(is_long ? "long steps" : "short steps");
    TierWorld world(options, store_, clock_);
    ASSERT_TRUE(world.add(1, tier_prompt(2, is_long ? 1500 : 20), 100));
    ASSERT_TRUE(world.run_until([&] { return world.scheduler().stats().num_running == 1; }));
    ASSERT_TRUE(world.add(2, tier_prompt(1, 224)));
    ASSERT_TRUE(world.run_all());
    EXPECT_EQ(world.ended().at(2).fetched, is_long ? 0 : 192);
  }
}

// Pages that were read for a session which nobody asks for have saved nothing.
TEST_F(TierReadsTest, OnlyTokensThatRequestsBeganWithAreCountedAsSaved) {
  TierWorld::Options options = with_pages(false, 64);
  options.tier.prefetch = StoragePrefetch::wait_complete;
  options.tier.row_seconds = to_seconds(options.row_time);
  for (const int seed : {1, 2}) fill(options, seed, 640);
  TierWorld world(options, store_, clock_);
  bool is_restored = false;
  ASSERT_TRUE(world.tier().restore({.name_space = {}, .tokens = tier_prompt(1, 640)},
                                   world.scheduler(), clock_.now() + 54s,
                                   [&] { is_restored = true; }));
  ASSERT_TRUE(world.run_until([&] { return is_restored; }));
  EXPECT_EQ(redis_of(world).pages_read_total, 20u);
  EXPECT_EQ(redis_of(world).tokens_total, 0u);
  EXPECT_EQ(redis_of(world).saved_seconds_total, 0);
  ASSERT_TRUE(world.add(2, tier_prompt(2, 640)));
  ASSERT_TRUE(world.run_all());
  EXPECT_EQ(world.ended().at(2).fetched, 608);
  EXPECT_EQ(redis_of(world).tokens_total, 608u);
  EXPECT_NEAR(redis_of(world).saved_seconds_total, 608 * to_seconds(options.row_time), 1e-3);
}

}  // namespace
}  // namespace hocket
