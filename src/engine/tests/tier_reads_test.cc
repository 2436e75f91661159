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
};

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
