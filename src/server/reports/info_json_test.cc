#include "server/reports/info_json.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

TEST(Load, HasAnEntryForEachRank) {
  RankStats first, second;
  first.scheduler.num_running = 2;
  second.scheduler.num_waiting = 5;
  const Json load = load_json(add_up({first, second}));
  ASSERT_EQ(load.size(), 2u);
  EXPECT_EQ(load[0]["dp_rank"], 0);
  EXPECT_EQ(load[0]["num_reqs"], 2);
  EXPECT_EQ(load[1]["dp_rank"], 1);
  EXPECT_EQ(load[1]["num_reqs"], 5);
  EXPECT_EQ(load_json(EngineStats()).size(), 1u);
}

}  // namespace
}  // namespace hocket
