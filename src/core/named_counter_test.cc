#include "core/named_counter.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace hocket {
namespace {

struct FruitCounts {
  uint64_t num_apples = 0, num_pears = 0;
};
constexpr auto kFruitCounters =
    std::to_array<NamedCounter<FruitCounts>>({{&FruitCounts::num_apples, "apples", "Apples picked"},
                                              {&FruitCounts::num_pears, "pears", "Pears picked"}});

static_assert(names_each_member(kFruitCounters));
static_assert(!names_each_member(std::to_array<NamedCounter<FruitCounts>>(
    {{&FruitCounts::num_apples, "apples", ""}, {&FruitCounts::num_apples, "pears", ""}})));
static_assert(!names_each_member(
    std::to_array<NamedCounter<FruitCounts>>({{&FruitCounts::num_apples, "apples", ""}})));

struct PickingCounts {
  uint64_t num_baskets = 0;
  double picking_seconds = 0, weather_seconds = 0;
};
constexpr auto kPickingCounters = std::to_array<NamedCounter<PickingCounts>>(
    {{&PickingCounts::num_baskets, "baskets", "Baskets filled"},
     {&PickingCounts::picking_seconds, "picking_seconds", "Time of all pickers"},
     {.value = &PickingCounts::weather_seconds,
      .name = "weather_seconds",
      .help = "Time without rain, the same for all pickers",
      .is_shared = true}});
static_assert(names_each_member(kPickingCounters));

TEST(NamedCounter, TheTableAddsEachMember) {
  FruitCounts sum{.num_apples = 1, .num_pears = 2};
  add_counters(kFruitCounters, {.num_apples = 10, .num_pears = 20}, sum);
  EXPECT_EQ(sum.num_apples, 11u);
  EXPECT_EQ(sum.num_pears, 22u);
}

TEST(NamedCounter, ASharedCountIsThatOfAnyRank) {
  PickingCounts sum{.num_baskets = 1, .picking_seconds = 0.5, .weather_seconds = 3};
  add_counters(kPickingCounters, {.num_baskets = 2, .picking_seconds = 0.25, .weather_seconds = 4},
               sum);
  EXPECT_EQ(sum.num_baskets, 3u);
  EXPECT_EQ(sum.picking_seconds, 0.75);
  EXPECT_EQ(sum.weather_seconds, 4);
}

TEST(NamedCounter, ThreadsAddToOneCountAndLoseNone) {
  AtomicCounts<PickingCounts> counts;
  {
    std::vector<std::jthread> pickers;
    for (int i = 0; i < 4; ++i)
      pickers.emplace_back([&counts] {
        for (int k = 0; k < 1000; ++k) {
          counts.add(&PickingCounts::num_baskets);
          counts.add(&PickingCounts::picking_seconds, 0.5);
        }
      });
  }
  const PickingCounts all = counts.read(kPickingCounters);
  EXPECT_EQ(all.num_baskets, 4000u);
  EXPECT_EQ(all.picking_seconds, 2000);
  EXPECT_EQ(all.weather_seconds, 0);
  EXPECT_EQ(counts.get(&PickingCounts::num_baskets), 4000u);
}

}  // namespace
}  // namespace hocket
