#include "core/named_counter.h"

#include <gtest/gtest.h>

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

TEST(NamedCounter, TheTableAddsEachMember) {
  FruitCounts sum{.num_apples = 1, .num_pears = 2};
  add_counters(kFruitCounters, {.num_apples = 10, .num_pears = 20}, sum);
  EXPECT_EQ(sum.num_apples, 11u);
  EXPECT_EQ(sum.num_pears, 22u);
}

}  // namespace
}  // namespace hocket
