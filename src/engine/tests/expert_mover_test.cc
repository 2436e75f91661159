// Tests the thread that works out and loads moves of experts, without the other ranks' votes.
#include "engine/balance/expert_mover.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "base/clock_testing.h"
#include "engine/balance/rebalance.h"
#include "engine/rank_setup.h"
#include "engine/tests/service.h"

namespace hocket {
namespace {

bool eventually(const std::function<bool()>& so) {
  const TimePoint deadline = RealClock().now() + testing::kPatience;
  while (!so() && RealClock().now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return so();
}

// A rank is lost while experts are planned. The next epoch needs none that is not here.
TEST(ExpertMover, AnEpochDoesNotWaitForAPlan) {
  ServerSettings settings = testing::settings_of(testing::kBundled, 4);
  settings.parallel.tolerate_ranks = 2;
  const auto runners = load_ranks({.settings = settings, .progress = {}, .tokenizer_eos = {}});
  ASSERT_TRUE(runners.has_value()) << describe(runners.error());
  Runner& runner = *(*runners)[0];
  ExpertStats stats(runner.info().model.num_layers, runner.placement(), 0);
  std::atomic<bool> plans = false;
  const auto takes_long = [&](std::span<const uint64_t>, const Placement& now,
                              const std::function<bool()>& is_over) {
    plans = true;
    const TimePoint deadline = RealClock().now() + testing::kPatience;
    while (!(is_over && is_over()) && RealClock().now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return now;
  };
  ExpertMover mover(
      {.model = settings.model, .rebalance = takes_long, .max_retry_time = testing::kPatience},
      runner, stats);
  const TimePoint begun = RealClock().now();
  {
    const std::vector<uint64_t> counts(stats.num_counts(), 1);
    mover.plan(counts, 1);
  }
  ASSERT_TRUE(eventually([&] { return plans.load(); }));
  mover.end_epoch();
  mover.load_for_epoch(RankSet::all(4));
  EXPECT_TRUE(eventually([&] { return mover.has_loaded(RankSet::all(4)); }));
  EXPECT_LT(RealClock().now() - begun, testing::kPatience / 2);
  EXPECT_EQ(mover.planned(), nullptr);
}

// The clock of loading notes the priority of the thread that loads.
std::atomic<int> priority = 0;
Duration note_priority() {
  priority = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
  return {};
}

// Rank 0 of four takes experts over. Clients wait, and other processes compute meanwhile.
TEST(ExpertMover, AnEpochIsLoadedWithThePriorityOfAnyThread) {
  if (getpriority(PRIO_PROCESS, 0) == 19) GTEST_SKIP() << "no thread has a lower priority";
  ServerSettings settings = testing::settings_of(testing::kBundled, 4);
  settings.parallel.tolerate_ranks = 2;
  const auto runners = load_ranks({.settings = settings, .progress = {}, .tokenizer_eos = {}});
  ASSERT_TRUE(runners.has_value()) << describe(runners.error());
  Runner& runner = *(*runners)[0];
  ExpertStats stats(runner.info().model.num_layers, runner.placement(), 0);
  priority = -1;
  ExpertMover mover(
      {.model = settings.model, .max_retry_time = testing::kPatience, .used_time = note_priority},
      runner, stats);
  RankSet two;
  two.add(0);
  two.add(1);
  mover.load_for_epoch(two);
  ASSERT_TRUE(eventually([&] { return mover.has_loaded(two); }));
  EXPECT_GT(mover.stats().moves_total, 0u);
  EXPECT_EQ(priority, getpriority(PRIO_PROCESS, 0));
}

// Two of four may be missing, but without rank 0 three are needed.
TEST(ExpertMover, NothingMovesForALeaveAfterWhichTheOthersPause) {
  ServerSettings settings = testing::settings_of(testing::kBundled, 4);
  settings.parallel.tolerate_ranks = 2;
  const auto runners = load_ranks({.settings = settings, .progress = {}, .tokenizer_eos = {}});
  ASSERT_TRUE(runners.has_value()) << describe(runners.error());
  Runner& runner = *(*runners)[1];
  ExpertStats stats(runner.info().model.num_layers, runner.placement(), 1);
  ExpertMover mover({.model = settings.model, .rank = 1, .max_retry_time = testing::kPatience},
                    runner, stats);
  FakeClock clock;
  Rebalance rebalance({.rank = 1,
                       .num_counts = static_cast<int>(stats.num_counts()),
                       .num_iterations = 0,
                       .are_enough = [](const RankSet& ranks) { return ranks.has(0); },
                       .clock = &clock},
                      mover);
  RankSet rank_0, leaving;
  rank_0.add(0);
  leaving.add(3);
  const std::vector<BalanceVote> votes(4);
  const std::vector<StepReport> reports(4);
  rebalance.restart(RankSet::all(4).without(rank_0));
  const uint8_t counting = rebalance.vote().phase;
  rebalance.agreed(votes, reports, {.leaving = leaving});
  EXPECT_EQ(rebalance.vote().phase, counting);
  rebalance.restart(RankSet::all(4));
  rebalance.agreed(votes, reports, {.leaving = leaving});
  EXPECT_NE(rebalance.vote().phase, counting);
}

}  // namespace
}  // namespace hocket
