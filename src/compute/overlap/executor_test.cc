#include "compute/overlap/executor.h"

#include <gtest/gtest.h>

#include "compute/overlap/played_testing.h"
#include "compute/overlap/testing.h"

namespace hocket {
namespace {

// The models have dense layers first, anywhere, only, or none; shared experts or none; and some
// have fewer layers than an order lags.
std::vector<std::vector<const OpGraph*>> models() {
  const OpGraph *dense = &dense_graph(), *moe = &moe_graph(), *shared = &shared_moe_graph();
  return {{moe},
          {shared},
          {dense},
          {moe, moe, moe, moe},
          {shared, shared, shared},
          {dense, shared, shared, shared},
          {dense, dense, dense, moe, moe},
          {dense, moe, dense, moe, dense},
          {dense, dense}};
}

TEST(Executor, PlaysEveryOrderOfTheTableInTimeOfItsNeeds) {
  const OrderTable& table = OrderTable::builtin();
  for (int i = 0; i < table.size(); ++i)
    for (const auto& layers : models())
      ASSERT_EQ(testing::late_when_played(table.at(i), layers), "") << table.at(i).name;
}

TEST(Executor, PlaysAnyLegalOrderInTimeOfItsNeeds) {
  std::mt19937 random(3);
  for (int round = 0; round < 1'000; ++round) {
    const Order order =
        round % 2 == 0 ? testing::random_order(random) : testing::tight_order(random);
    for (const auto& layers : models())
      ASSERT_EQ(testing::late_when_played(order, layers), "") << to_yaml(order);
  }
}

TEST(Executor, PassesOverAHalfWithoutRows) {
  const Order& order = testing::order_named("four-phase");
  std::array<Half, 2> halves;
  halves[0].rows = {0, 3};
  halves[1] = Half{.index = 1, .rows = {3, 0}};
  play({order, 2}, halves, [](int, Op, Half& half) { EXPECT_EQ(half.index, 0); });
  int played = 0;
  play({order, 2, EmptyHalves::played}, halves,
       [&](int, Op, Half& half) { played += half.index == 1 ? 1 : 0; });
  EXPECT_EQ(played, 2 * kNumOps);
}

}  // namespace
}  // namespace hocket
