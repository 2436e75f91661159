// Tests pages that are evicted after their prompt has looked for them, or that find no room when
// they come: they are read again. Tests when the pages of a session are read.
#include "engine/tests/tier_world.h"

namespace hocket {
namespace {

using namespace testing;
using namespace std::chrono_literals;

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

// The tree has ten pages of the prompt when it asks for the others. While these wait for their
// turn, another request evicts the last of the ten.
TEST_F(TierAgainTest, PagesBehindOneThatWasEvictedMeanwhileAreReadAgain) {
  TierWorld::Options options = with_pages(false, 32);
  options.tier.prefetch = StoragePrefetch::wait_complete;
  fill(options, 1, 640);
  TierWorld world(options, store_, clock_);
  ASSERT_TRUE(world.add(1, tier_prompt(1, 320)));
  ASSERT_TRUE(world.run_all());
  ASSERT_EQ(world.scheduler().in_tree_len({}, tier_prompt(1, 640)), 320);
  std::atomic<int> num_reading{0};
  std::atomic<bool> may_go{false};
  store_->on_read = [&] {
    const int number = ++num_reading;
    while (number == 1 && !may_go) std::this_thread::sleep_for(1ms);
    return true;
  };
  ASSERT_TRUE(world.add(2, tier_prompt(1, 640)));
  ASSERT_TRUE(world.wait_until([&] { return num_reading == 1; }));
  ASSERT_TRUE(world.add(3, tier_prompt(3, 800), 20));
  ASSERT_TRUE(world.run_until([&] { return world.ended().contains(3); }));
  ASSERT_LT(world.scheduler().in_tree_len({}, tier_prompt(1, 640)), 320);
  EXPECT_EQ(world.scheduler().stats().num_held, 1);
  may_go = true;
  ASSERT_TRUE(world.run_all());
  EXPECT_EQ(world.ended().at(2).cached, 608);
  EXPECT_GE(world.ended().at(2).fetched, 608 - 320 + 32) << "the evicted ones, too";
  world.scheduler().check_integrity();
}

// One answer has nearly all of the pool when the pages come. They are read again when it has ended.
TEST_F(TierAgainTest, PagesThatFoundNoRoomAreReadAgain) {
  TierWorld::Options options = with_pages(false, 32);
  options.tier.prefetch = StoragePrefetch::wait_complete;
  fill(options, 1, 576);
  TierWorld world(options, store_, clock_);
  ASSERT_TRUE(world.add(2, tier_prompt(2, 800), 200));
  ASSERT_TRUE(world.run_until([&] { return world.scheduler().stats().num_free_pages <= 7; }));
  std::atomic<int> num_read{0};
  store_->on_read = [&] { return ++num_read > 0; };
  ASSERT_TRUE(world.add(1, tier_prompt(1, 576)));
  ASSERT_TRUE(world.wait_until([&] { return num_read == 17; }));
  EXPECT_EQ(world.scheduler().stats().num_held, 1);
  // The answer has steps left when the task's end has come, too.
  ASSERT_TRUE(world.run_until([&] {
    std::this_thread::sleep_for(1ms);
    return world.scheduler().stats().num_held == 0;
  }));
  ASSERT_TRUE(world.run_all());
  EXPECT_EQ(world.ended().at(1).cached, 544);
  EXPECT_GE(world.ended().at(1).fetched, 256);
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

// Every reader is busy when the session is asked for, and again with what comes next.
TEST_F(TierAgainTest, ARestoreIsReadBeforeLaterLongPrompts) {
  TierWorld::Options options = with_pages(false, 1024);
  for (int seed = 1; seed <= 9; ++seed) fill(options, seed, seed < 9 ? 2048 : 320);
  options.tier.row_seconds = to_seconds(options.row_time);
  std::atomic<int> num_reading{0};
  std::atomic<bool> may_go{false}, may_end{false}, is_restored{false};
  store_->on_open = [&](const PagesWanted& wanted) {
    if (wanted.prompt.size() == 320) is_restored = true;
  };
  store_->on_read = [&] {
    const int number = ++num_reading;
    while (number <= 4 ? !may_go : !may_end) std::this_thread::sleep_for(1ms);
    return true;
  };
  TierWorld world(options, store_, clock_);
  const auto add = [&](int id) {
    return world.add(static_cast<uint64_t>(id), tier_prompt(id, 2048));
  };
  for (const int id : {1, 2, 3, 4}) ASSERT_TRUE(add(id));
  ASSERT_TRUE(world.wait_until([&] { return num_reading == 4; }));
  ASSERT_TRUE(world.tier().restore({.name_space = {}, .tokens = tier_prompt(9, 320)},
                                   world.scheduler(), clock_.now() + 54s, [] {}));
  for (const int id : {5, 6, 7, 8}) ASSERT_TRUE(add(id));
  for (const uint64_t id : {1, 2, 3, 4}) world.abort(id);
  EXPECT_FALSE(world.step());
  may_go = true;
  EXPECT_TRUE(world.wait_until([&] { return num_reading == 8; }));
  EXPECT_TRUE(is_restored);
  may_end = true;
  ASSERT_TRUE(world.run_all());
}

}  // namespace
}  // namespace hocket
