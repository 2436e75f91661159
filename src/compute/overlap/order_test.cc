#include "compute/overlap/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "compute/overlap/executor.h"
#include "compute/overlap/testing.h"

namespace hocket {
namespace {

TEST(Order, BuiltInOrdersAreLegalForEveryGraph) {
  for (const Order* order : {&serial_order(), &testing::order_named("four-phase")})
    for (const OpGraph* graph : {&moe_graph(), &shared_moe_graph(), &dense_graph()})
      EXPECT_TRUE(validate(*order, *graph).has_value()) << order->name;
}

Order without(Order order, Op op) {
  std::erase_if(order.slots, [&](const Slot& s) { return s.op == op; });
  return order;
}

std::string refusal(const Order& order) {
  const auto result = validate(order, moe_graph());
  return result ? "" : result.error().message;
}

TEST(Order, SharedExpertsComeBetweenGateAndCombine) {
  const auto refused = [](Op before, Op after) {
    Order order = serial_order();
    const auto at = [&](Op op) {
      return std::ranges::find_if(order.slots, [&](const Slot& s) { return s.op == op; });
    };
    std::iter_swap(at(before), at(after));
    const auto result = validate(order, shared_moe_graph());
    return result ? "" : result.error().message;
  };
  EXPECT_NE(refused(Op::shared, Op::combine_wait).find("a.combine_wait"), std::string::npos);
  EXPECT_NE(refused(Op::gate, Op::shared).find("needs a.gate before it"), std::string::npos);
}

TEST(Order, AMissingOperationIsNamed) {
  EXPECT_NE(refusal(without(serial_order(), Op::experts)).find("a.experts stands 0 times"),
            std::string::npos);
}

TEST(Order, ANeedThatComesLaterIsNamed) {
  Order order = serial_order();
  const auto at = [&](Op op) {
    return std::ranges::find_if(order.slots, [&](const Slot& s) { return s.op == op; });
  };
  std::iter_swap(at(Op::gate), at(Op::dispatch_start));
  EXPECT_NE(refusal(order).find("a.dispatch_start needs a.gate before it"), std::string::npos);
}

TEST(Order, ALagMayPutAnOperationBesideTheNextLayers) {
  // combine_wait of layer l under attn_in of ... is illegal inside one half: the next layer needs
  // it.
  Order order = serial_order();
  for (Slot& slot : order.slots)
    if (slot.op == Op::combine_wait) slot.lag = 1;
  EXPECT_NE(refusal(order).find("of the next layer comes before a-.combine_wait"),
            std::string::npos);
  // Put first in the period it is ready in time.
  std::ranges::rotate(order.slots, order.slots.end() - 1);
  EXPECT_EQ(refusal(order), "");
}

TEST(Order, TheSecondHalfAttendsAfterTheFirstHasStoredItsKeys) {
  Order order = testing::order_named("four-phase");
  std::ranges::stable_partition(order.slots, [](const Slot& s) { return s.half == 1; });
  EXPECT_NE(refusal(order).find("b.attn_core reads keys that a.attn_in has not stored yet"),
            std::string::npos);
}

// Plays random orders and follows what each half has done; legal ones must meet every need.
TEST(Executor, PlaysEveryLegalOrderInTimeOfItsNeeds) {
  std::mt19937 random(7);
  int legal = 0;
  for (int round = 0; round < 20'000; ++round) {
    Order order = testing::order_named("four-phase");
    for (Slot& slot : order.slots) slot.lag = static_cast<uint8_t>(random() % 16 == 0);
    for (int swaps = static_cast<int>(random() % 4); swaps > 0; --swaps)
      std::swap(order.slots[random() % order.slots.size()],
                order.slots[random() % order.slots.size()]);
    if (!validate(order, moe_graph())) continue;
    ++legal;
    constexpr int kLayers = 4;
    std::array<Half, 2> halves;
    halves[0].rows = {0, 3};
    halves[1] = Half{.index = 1, .rows = {3, 2}};
    std::array<std::vector<int>, 2> done;  // layer * ops + place in the graph
    play({order, kLayers}, halves, [&](int layer, Op op, Half& half) {
      const auto& ops = moe_graph().ops;
      const auto place = std::ranges::find(ops, op) - ops.begin();
      if (place == std::ssize(ops)) return;  // mlp: not in this graph
      done[half.index].push_back(static_cast<int>(layer * std::ssize(ops) + place));
    });
    for (const std::vector<int>& steps : done) {
      ASSERT_EQ(steps.size(), kLayers * moe_graph().ops.size());
      ASSERT_TRUE(std::ranges::is_sorted(steps));
    }
  }
  EXPECT_GT(legal, 100);
}

TEST(Executor, PassesOverAHalfWithoutRows) {
  std::array<Half, 2> halves;
  halves[0].rows = {0, 3};
  halves[1] = Half{.index = 1, .rows = {3, 0}};
  play({testing::order_named("four-phase"), 2}, halves,
       [](int, Op, Half& half) { EXPECT_EQ(half.index, 0); });
  int played = 0;
  play({testing::order_named("four-phase"), 2, EmptyHalves::played}, halves,
       [&](int, Op, Half& half) { played += half.index == 1 ? 1 : 0; });
  EXPECT_EQ(played, 2 * kNumOps);
}

}  // namespace
}  // namespace hocket
