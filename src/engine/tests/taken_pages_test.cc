// Tests how many of the pages that were read a step takes in, in virtual time.
#include "engine/tests/tier_world.h"

namespace hocket {
namespace {

using namespace testing;
using namespace std::chrono_literals;

// A page takes 2 ms here and a step 50 ms or 1 ms. Beside an answer, pages take a tenth of a step,
// but at least one is taken; beside nobody they take 20 ms at a time.
TEST_F(TierWorldTest, PagesThatWereReadTakeALimitedPartOfEachStep) {
  constexpr uint64_t kAnswer = 1, kKnown = 2, kLater = 3;
  for (const Duration row_time : {Duration(50ms), Duration(1ms)}) {
    SCOPED_TRACE(row_time == Duration(1ms) ? "short steps" : "long steps");
    const int seed = row_time == Duration(1ms) ? 1 : 2;
    TierWorld::Options options = with_pages(false, 128);
    options.tier.prefetch = StoragePrefetch::wait_complete;
    fill(options, seed, 704);
    fill(options, seed + 10, 704);
    options.row_time = row_time;
    TierWorld world(options, store_, clock_);
    int num_taken = 0;
    world.on_taken = [&] { ++num_taken, clock_.advance(2ms); };
    ASSERT_TRUE(world.add(kAnswer, tier_prompt(20, 8), 1500));
    ASSERT_TRUE(world.step());
    ASSERT_TRUE(world.add(kKnown, tier_prompt(seed, 704)));
    ASSERT_TRUE(world.step()) << "the pages are ordered";
    ASSERT_TRUE(TierWorld::wait_until([&] {
      return world.tier().stats().tiers[static_cast<size_t>(PageTier::redis)].pages_read_total ==
             21;
    }));
    int most = 0;
    while (num_taken < 21) {
      const int before = num_taken;
      ASSERT_TRUE(world.step()) << "the answer goes on";
      most = std::max(most, num_taken - before);
      // The last page is counted a moment before it is delivered.
      if (num_taken == before) std::this_thread::sleep_for(1ms);
    }
    EXPECT_LE(most, row_time == Duration(1ms) ? 1 : 2);
    ASSERT_TRUE(world.run_until([&] { return world.ended().contains(kKnown); }));
    EXPECT_EQ(world.ended().at(kKnown).fetched, 672);
    world.abort(kAnswer);
    ASSERT_TRUE(world.run_all());

    ASSERT_TRUE(world.add(kLater, tier_prompt(seed + 10, 704)));
    most = 0;
    ASSERT_TRUE(world.run_until([&, last = num_taken]() mutable {
      most = std::max(most, num_taken - std::exchange(last, num_taken));
      return world.ended().contains(kLater);
    }));
    EXPECT_LE(most, 10);
    EXPECT_EQ(world.ended().at(kLater).fetched, 672);
  }
}

TEST(TakePaceTest, BytesFollowFromTheMeasuredSpeedAndTheLastStep) {
  TakePace pace;
  EXPECT_EQ(pace.max_bytes(EngineLoad::running), 0);
  pace.note(0, 1s);
  EXPECT_EQ(pace.max_bytes(EngineLoad::idle), 0) << "nothing was measured";
  pace.note(1'000'000, 1ms);
  EXPECT_NEAR(pace.max_bytes(EngineLoad::running), 1'000'000, 1) << "the least time";
  pace.note_step(100ms);
  EXPECT_NEAR(pace.max_bytes(EngineLoad::running), 10'000'000, 1) << "a tenth of the step";
  EXPECT_NEAR(pace.max_bytes(EngineLoad::idle), 20'000'000, 1);
  for (int i = 0; i < 30; ++i) pace.note(1'000'000, 2ms);
  EXPECT_NEAR(pace.max_bytes(EngineLoad::running), 5'000'000, 1000) << "copying became slower";
  for (int i = 0; i < 60; ++i) pace.note(1'000'000, Duration{});
  EXPECT_GT(pace.max_bytes(EngineLoad::running), 1'000'000'000) << "a clock that stands still";
}

}  // namespace
}  // namespace hocket
