#include "bench/found_orders.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "bench/wide_search.h"
#include "compute/overlap/played_testing.h"
#include "compute/overlap/testing.h"

namespace hocket {
namespace {

// Returns what is computed in a period, without starts and waits, in a form that depends neither on
// the beginning of the period nor on the names of the halves.
std::vector<int> circle_of(const Order& order) {
  std::vector<int> least;
  for (const int flip : {0, 1}) {
    std::vector<int> turns;
    for (const Slot& slot : order.slots)
      if (slot.op == Op::attn_in || slot.op == Op::attn_core || slot.op == Op::shared ||
          slot.op == Op::experts)
        turns.push_back((slot.half ^ flip) * kNumOps + static_cast<int>(slot.op));
    for (size_t i = 0; i < turns.size(); ++i) {
      std::ranges::rotate(turns, turns.begin() + 1);
      if (least.empty() || turns < least) least = turns;
    }
  }
  return least;
}

bool attends_in_two_steps(std::vector<Slot> turns, int half) {
  std::erase_if(turns, [&](const Slot& s) { return s.half != half; });
  const auto first = std::ranges::find(turns, Op::attn_in, &Slot::op);
  std::ranges::rotate(turns, first);
  return turns[1].op == Op::attn_core;
}

TEST(FoundOrders, AreAllThereAreAndNoneTwice) {
  const std::vector<Order> found = all_two_half_orders();
  std::set<std::vector<int>> circles;
  for (const Order& order : found) EXPECT_TRUE(circles.insert(circle_of(order)).second);
  EXPECT_EQ(found.size(), 288u);
  // The wanted orders are those of all permutations of seven turns behind a.attn_in in which each
  // half has attn_core right after attn_in.
  std::vector<Slot> turns;
  for (const uint8_t half : {0, 1})
    for (const Op op : {Op::attn_in, Op::attn_core, Op::shared, Op::experts})
      turns.push_back({half, op, 0});
  const auto less = [](const Slot& x, const Slot& y) {
    return std::pair(x.half, x.op) < std::pair(y.half, y.op);
  };
  int legal = 0;
  std::set<std::vector<int>> wanted;
  do {
    if (!attends_in_two_steps(turns, 0) || !attends_in_two_steps(turns, 1)) continue;
    ++legal;
    wanted.insert(circle_of({"", 2, turns}));
  } while (std::next_permutation(turns.begin() + 1, turns.end(), less));
  EXPECT_EQ(legal, 560);
  EXPECT_EQ(circles, wanted);
}

TEST(FoundOrders, StartAsSoonAsPossibleAndWaitAsLateAsPossible) {
  for (const Order& order : all_two_half_orders())
    for (size_t i = 0; i < order.slots.size(); ++i) {
      const Slot& slot = order.slots[i];
      const Slot& before = order.slots[(i + order.slots.size() - 1) % order.slots.size()];
      const Slot& after = order.slots[(i + 1) % order.slots.size()];
      const auto beside = [&](const Slot& other, Op op) {
        EXPECT_TRUE(other.op == op && other.half == slot.half)
            << order.name << " " << slot_name(slot);
      };
      if (slot.op == Op::dispatch_start) beside(before, Op::gate);
      if (slot.op == Op::combine_start) beside(before, Op::experts);
      if (slot.op == Op::dispatch_wait) beside(after, Op::experts);
      if (slot.op == Op::combine_wait) beside(after, Op::attn_in);
    }
}

// SGLang's prefill starts and waits in the same places; the other named orders wait earlier.
TEST(FoundOrders, OneOfThemHasAName) {
  const auto circle = circle_of(testing::order_named("sglang-prefill"));
  EXPECT_EQ(std::ranges::count(all_two_half_orders(), circle, circle_of), 1);
}

TEST(FoundOrders, AreLegalAndPlayedInTimeOfTheirNeeds) {
  const OpGraph *dense = &dense_graph(), *moe = &moe_graph(), *shared = &shared_moe_graph();
  const std::array layers = {dense, shared, shared, moe};
  for (const Order& order : all_two_half_orders()) {
    for (const OpGraph* graph : {dense, moe, shared}) {
      const Result<void> legal = validate(order, *graph);
      ASSERT_TRUE(legal.has_value()) << legal.error().message;
    }
    ASSERT_EQ(testing::late_when_played(order, layers), "") << order.name;
  }
}

TEST(FoundOrders, StandBehindTheNamedOnesInTheTableOfAll) {
  const OrderTable &all = all_orders(), &named = OrderTable::builtin();
  EXPECT_EQ(all.user_begin(), named.size());
  EXPECT_EQ(all.size(), named.size() + 288);
  for (int i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all.find(all.at(i).name), i);
    EXPECT_EQ(all.at(i).name.starts_with("found-"), i >= named.size());
  }
}

// An order that a search found can be given to a server.
TEST(FoundOrders, ComeBackFromText) {
  for (const Order& order : all_two_half_orders()) {
    const auto read = parse_order(to_yaml(order), "x");
    ASSERT_TRUE(read.has_value()) << describe(read.error());
    ASSERT_EQ(*read, order);
  }
}

}  // namespace
}  // namespace hocket
