#include "server/health_and_watchdog.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

TEST(Health, IsNotReadyWithoutARank) {
  Health health(Health::Limits{});
  health.set_loaded();
  EngineStats stats;
  EXPECT_TRUE(health.ready(stats));
  stats.lost = error(ErrorCode::lost_rank, "rank 1 is gone");
  EXPECT_EQ(health.ready(stats).error().message, "rank 1 is gone");
  EXPECT_EQ(health.healthy(stats).error().code, ErrorCode::lost_rank);
}

// The message about a stuck engine names the rank, its action and the time; ranks that wait for it
// follow.
TEST(Health, NamesWhereItIsStuck) {
  const Health health({.max_step_seconds = 10, .watchdog_seconds = 300});
  RankStats waits, stuck, idle;
  waits.busy = stuck.busy = true;
  waits.position = {.action = StepAction::forward, .layer = 3, .waits = true};
  waits.seconds_since_last_step = 310;
  stuck.position = {.action = StepAction::sample};
  stuck.seconds_since_last_step = 312.5;
  const auto late = health.watchdog(add_up({waits, stuck, idle}));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::watchdog);
  EXPECT_EQ(late.error().message,
            "the engine has work and made no step for 312.5 s: rank 1 is in sample since 312.5 s; "
            "rank 0 is in forward, layer 3, waiting for other ranks since 310.0 s");
  EXPECT_EQ(exit_status(late.error().code), 6);

  const auto alone = health.watchdog(add_up({stuck}));
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().message,
            "the engine has work and made no step for 312.5 s: it is in sample");
}

TEST(Health, FollowsTheEngine) {
  Health health({.max_step_seconds = 10, .watchdog_seconds = 300});
  EngineStats stats;
  EXPECT_EQ(health.ready().error().code, ErrorCode::loading);
  EXPECT_FALSE(health.healthy(stats));
  health.set_loaded();
  EXPECT_TRUE(health.ready());
  EXPECT_TRUE(health.healthy(stats));
  stats.busy = true;
  stats.seconds_since_last_step = 9;
  EXPECT_TRUE(health.healthy(stats));
  stats.seconds_since_last_step = 11;
  EXPECT_EQ(health.healthy(stats).error().code, ErrorCode::watchdog);
  EXPECT_TRUE(health.watchdog(stats));
  stats.seconds_since_last_step = 301;
  EXPECT_EQ(exit_status(health.watchdog(stats).error().code), 6);
  EXPECT_TRUE(Health({.watchdog_seconds = 0}).watchdog(stats));
  stats.busy = false;
  EXPECT_TRUE(health.healthy(stats));
  EXPECT_TRUE(health.watchdog(stats));
  health.set_draining();
  EXPECT_EQ(health.ready().error().code, ErrorCode::shutting_down);
}

}  // namespace
}  // namespace hocket
