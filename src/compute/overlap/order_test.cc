#include "compute/overlap/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "compute/overlap/order_yaml.h"
#include "compute/overlap/played_testing.h"
#include "compute/overlap/testing.h"

namespace hocket {
namespace {

using testing::order_named;

auto slot_of(Order& order, int half, Op op) {
  return std::ranges::find_if(order.slots,
                              [&](const Slot& s) { return s.half == half && s.op == op; });
}

void swap_slots(Order& order, int half, Op one, Op other) {
  std::iter_swap(slot_of(order, half, one), slot_of(order, half, other));
}

void remove_slot(Order& order, int half, Op op) {
  order.slots.erase(slot_of(order, half, op));
}

struct Mistake {
  std::string_view order;
  std::function<void(Order&)> make;
  std::string_view what, fix;
};

TEST(Order, EveryMistakeIsNamedWithWhatToChange) {
  const Mistake mistakes[] = {
      {"serial", [](Order& o) { o.num_halves = 3; }, "it has 3 halves", "halves: 1 to 2"},
      {"serial", [](Order& o) { o.num_halves = 0; }, "it has 0 halves", "halves: 1 to 2"},
      {"four-phase", [](Order& o) { o.num_halves = 1; },
       "b-.combine_wait is of half b, but there is 1", "halves: 2, or take it out"},
      {"serial", [](Order& o) { slot_of(o, 0, Op::combine_wait)->lag = 3; },
       "a---.combine_wait is 3 layers behind, 2 at most", "a--.combine_wait"},
      {"serial", [](Order& o) { remove_slot(o, 0, Op::experts); },
       "a.experts occurs 0 times, must occur once", "put a.experts behind a.dispatch_wait"},
      {"serial", [](Order& o) { remove_slot(o, 0, Op::attn_in); },
       "a.attn_in occurs 0 times, must occur once", "put a.attn_in first"},
      {"four-phase", [](Order& o) { remove_slot(o, 1, Op::dispatch_wait); },
       "b.dispatch_start has no wait: b.dispatch_wait occurs 0 times",
       "put b.dispatch_wait behind b.dispatch_start"},
      {"four-phase", [](Order& o) { remove_slot(o, 1, Op::combine_wait); },
       "b.combine_start has no wait: b.combine_wait occurs 0 times",
       "put b.combine_wait behind b.shared"},
      {"four-phase", [](Order& o) { o.slots.push_back({1, Op::gate, 1}); },
       "b.gate occurs 2 times, must occur once", "take b-.gate out"},
      {"serial", [](Order& o) { swap_slots(o, 0, Op::gate, Op::dispatch_start); },
       "a.dispatch_start needs a.gate before it", "move a.dispatch_start behind a.gate"},
      {"serial", [](Order& o) { swap_slots(o, 0, Op::gate, Op::shared); },
       "a.shared needs a.gate before it", "move a.shared behind a.gate"},
      {"serial", [](Order& o) { slot_of(o, 0, Op::shared)->lag = 1; },
       "a.combine_wait needs a-.shared before it", "move a.combine_wait behind a-.shared"},
      {"serial", [](Order& o) { slot_of(o, 0, Op::combine_wait)->lag = 1; },
       "a.attn_in of the next layer comes before a-.combine_wait",
       "move a-.combine_wait before a.attn_in, or write it with one '-' less"},
      {"sglang-prefill",
       [](Order& o) {
         for (Slot& slot : o.slots) slot.lag += slot.half == 0 ? 1 : 0;
       },
       "b.attn_core needs the keys and states of a-.attn_core, which comes later",
       "move b.attn_core behind a-.attn_core, or write one '-' more at all slots of b"},
  };
  for (const Mistake& mistake : mistakes) {
    Order order = order_named(mistake.order);
    mistake.make(order);
    const Result<void> result = validate(order, shared_moe_graph());
    ASSERT_FALSE(result.has_value()) << mistake.what;
    EXPECT_EQ(result.error().code, ErrorCode::bad_value);
    const std::string want = fmt::format("order {}: {}", order.name, mistake.what);
    EXPECT_EQ(result.error().message.substr(0, want.size()), want);
    EXPECT_EQ(result.error().fix, mistake.fix);
  }
}

TEST(Order, AFaultPointsAtTheSlotToChange) {
  Order order = order_named("four-phase");
  swap_slots(order, 1, Op::gate, Op::dispatch_start);
  const auto fault = find_fault(order, moe_graph());
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(order.slots[fault->slot], (Slot{1, Op::dispatch_start, 0}));
}

TEST(Order, DenseLayersNeedTheirMlp) {
  Order order = serial_order();
  remove_slot(order, 0, Op::mlp);
  EXPECT_TRUE(validate(order, moe_graph()).has_value());
  EXPECT_FALSE(validate(order, dense_graph()).has_value());
  remove_slot(order, 0, Op::shared);
  EXPECT_TRUE(validate(order, moe_graph()).has_value());
  EXPECT_FALSE(validate(order, shared_moe_graph()).has_value());
}

TEST(Order, ALagMayPutAnOperationBesideTheNextLayers) {
  Order order = serial_order();
  slot_of(order, 0, Op::combine_wait)->lag = 1;
  EXPECT_FALSE(validate(order, moe_graph()).has_value());
  // At the first place of the period it is ready in time.
  std::ranges::rotate(order.slots, order.slots.end() - 1);
  EXPECT_TRUE(validate(order, moe_graph()).has_value());
}

// An order is legal if it meets every need when it is played, and only then.
TEST(Order, IsLegalIfAndOnlyIfItMeetsEveryNeedWhenPlayed) {
  std::mt19937 random(7);
  int legal = 0, illegal = 0;
  for (int round = 0; round < 5'000; ++round) {
    Order order = testing::random_order(random);
    for (auto changes = random() % 4; changes > 0; --changes) {
      Slot& slot = order.slots[random() % order.slots.size()];
      if (random() % 2 == 0)
        slot.lag = static_cast<uint8_t>(random() % (kMaxLag + 1));
      else
        std::swap(slot, order.slots[random() % order.slots.size()]);
    }
    for (const OpGraph* graph : {&moe_graph(), &shared_moe_graph(), &dense_graph()}) {
      const std::vector<const OpGraph*> layers(5, graph);
      const Result<void> result = validate(order, *graph);
      const std::string late = testing::late_when_played(order, layers);
      ASSERT_EQ(result.has_value(), late.empty())
          << (result ? "" : result.error().message) << late << "\n"
          << to_yaml(order);
      ++(result ? legal : illegal);
    }
  }
  EXPECT_GT(legal, 3'000);
  EXPECT_GT(illegal, 3'000);
}

TEST(RandomOrder, IsLegalAndGoesWhereNobodyWouldGo) {
  std::mt19937 random(11);
  int late_starts = 0, late_shared = 0, b_first = 0;
  std::array<int, kMaxLag + 1> lags{};
  for (int round = 0; round < 1'000; ++round) {
    const Order order = testing::random_order(random);
    ASSERT_EQ(order.slots.size(), size_t{2} * kNumOps);
    for (const OpGraph* graph : {&moe_graph(), &shared_moe_graph(), &dense_graph()})
      ASSERT_TRUE(validate(order, *graph).has_value());
    ++lags[order.max_lag()];
    for (size_t i = 1; i < order.slots.size(); ++i) {
      const Slot &before = order.slots[i - 1], &slot = order.slots[i];
      late_starts += slot.op == Op::dispatch_start && before != Slot{slot.half, Op::gate, slot.lag};
      late_shared += slot.op == Op::shared && before == Slot{slot.half, Op::experts, slot.lag};
    }
    b_first += order.slots.front().half;
  }
  for (const int count : {late_starts, late_shared, b_first, lags[1], lags[2]})
    EXPECT_GT(count, 20);
}

}  // namespace
}  // namespace hocket
