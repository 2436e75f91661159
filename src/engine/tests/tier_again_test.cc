// Tests pages that are evicted after their prompt has looked for them: they are read again.
#include "engine/tests/tier_world.h"

namespace hocket {
namespace {

using namespace testing;

class TierAgainTest : public TierWorldTest {
 protected:
  static uint64_t num_fetched(TierWorld& world) {
    return world.tier().stats().tiers[static_cast<size_t>(PageTier::redis)].tokens_total;
  }
};

// One prompt is in the tree when it comes and waits in line; the one before it takes its pages.
TEST_F(TierAgainTest, PagesThatWereEvictedWhileTheirPromptWaitedAreReadAgain) {
  TierWorld::Options options = with_pages(false, 32);
  options.scheduler.max_running_requests = 1;
  options.tier.prefetch = StoragePrefetch::wait_complete;
  TierWorld world(options, store_, clock_);
  ASSERT_TRUE(world.add(1, tier_prompt(1, 576)));
  ASSERT_TRUE(world.run_all());
  ASSERT_TRUE(world.wait_until([&] { return store_->size() == 18; }));
  ASSERT_TRUE(world.add(2, tier_prompt(2, 800), 20));
  ASSERT_TRUE(world.run_until([&] { return world.scheduler().stats().num_running == 1; }));
  ASSERT_TRUE(world.add(3, tier_prompt(1, 576)));
  EXPECT_EQ(world.scheduler().stats().num_waiting, 1) << "it need not be held";
  ASSERT_TRUE(world.run_all());
  EXPECT_EQ(world.ended().at(3).cached, 544);
  EXPECT_GE(world.ended().at(3).fetched, 256);
  world.scheduler().check_integrity();
}

// Three answers grow until the one with the long prompt has to give its pages up, and the others
// take these.
TEST_F(TierAgainTest, ARetractedRequestReadsItsPrompt) {
  TierWorld::Options options = with_pages(false, 28);
  options.scheduler.conservativeness = 0;
  options.tier.prefetch = StoragePrefetch::wait_complete;
  TierWorld world(options, store_, clock_);
  ASSERT_TRUE(world.add(3, tier_prompt(3, 400), 200));
  ASSERT_TRUE(world.wait_until([&] { return world.tier().has_read_pages(); })) << "its end";
  for (const uint64_t id : {1, 2})
    ASSERT_TRUE(world.add(id, tier_prompt(static_cast<int>(id), 64), 380));
  ASSERT_TRUE(world.run_until([&] { return world.scheduler().stats().num_retracted_total > 0; }));
  EXPECT_EQ(num_fetched(world), 0u);
  ASSERT_TRUE(world.run_all());
  EXPECT_GE(num_fetched(world), 256u);
  for (const uint64_t id : {1, 2, 3}) EXPECT_EQ(world.ended().at(id).finish, FinishReason::length);
  world.scheduler().check_integrity();
}

// Nothing is read while memory suffices, or once the store is away.
TEST_F(TierAgainTest, APromptThatCanBeReadNowhereIsComputed) {
  TierWorld::Options options = with_pages(false, 32);
  options.scheduler.max_running_requests = 1;
  options.tier.prefetch = StoragePrefetch::wait_complete;
  TierWorld world(options, store_, clock_);
  ASSERT_TRUE(world.add(1, tier_prompt(1, 576)));
  ASSERT_TRUE(world.run_all());
  ASSERT_TRUE(world.wait_until([&] { return store_->size() == 18; }));
  ASSERT_TRUE(world.add(2, tier_prompt(2, 800), 20));
  ASSERT_TRUE(world.run_until([&] { return world.scheduler().stats().num_running == 1; }));
  ASSERT_TRUE(world.add(3, tier_prompt(1, 576)));
  store_->leave();
  ASSERT_TRUE(world.run_all());
  EXPECT_EQ(world.ended().at(3).fetched, 0);
  EXPECT_EQ(world.ended().at(3).finish, FinishReason::length);
}

}  // namespace
}  // namespace hocket
