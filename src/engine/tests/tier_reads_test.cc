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
  ASSERT_TRUE(world.add(2, tier_prompt(1, 640)));
  EXPECT_TRUE(world.run_until([&] { return world.ended().contains(2); }));
  EXPECT_FALSE(world.ended().contains(1));
  EXPECT_EQ(world.ended().at(2).cached, 608);
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
