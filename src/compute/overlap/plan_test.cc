#include "compute/overlap/plan.h"

#include <gtest/gtest.h>

#include <set>

#include "compute/overlap/testing.h"
#include "compute/overlap/tuning.h"

namespace hocket {
namespace {

using testing::table;

Plan plan_with(std::string_view order, int parts = 1, int share = kEvenShare) {
  return {.order = table().find(order), .parts = parts, .share = share};
}

TEST(PlanId, EveryPlanHasItsOwnAndComesBack) {
  std::set<PlanId> seen;
  for (int order = 0; order < table().size(); ++order)
    for (const Grain& grain : kTuning.grains)
      for (int share = 1; share < kWholeShare; ++share) {
        if (table().at(order).num_halves == 1 && share != kEvenShare) continue;
        const Plan plan = {order, grain.parts, grain.waves, share};
        const PlanId id = id_of(plan);
        ASSERT_TRUE(seen.insert(id).second);
        ASSERT_EQ(plan_of(id, table()), plan);
      }
  EXPECT_EQ(id_of(Plan{}), PlanId::none);
  EXPECT_TRUE(seen.contains(PlanId::none));
}

TEST(PlanId, WhatThisTableCannotPlayIsNoPlan) {
  const auto refused = [](uint32_t id) { return !plan_of(PlanId{id}, table()).has_value(); };
  const uint32_t serial = 0, two = static_cast<uint32_t>(table().find("four-phase"));
  EXPECT_FALSE(refused(two));
  EXPECT_TRUE(refused(static_cast<uint32_t>(table().size())));  // no such order
  EXPECT_TRUE(refused(0xffff));
  EXPECT_FALSE(refused(two | 3u << 16));            // eight parts
  EXPECT_TRUE(refused(two | 3u << 16 | 1u << 24));  // sixteen messages back
  EXPECT_TRUE(refused(two | 32u << 18));            // nothing for the first half
  EXPECT_TRUE(refused(serial | 1u << 18));          // a share of a single half
  EXPECT_FALSE(refused(two | 1u << 24));            // two waves
  for (uint32_t bit = 26; bit < 32; ++bit) EXPECT_TRUE(refused(two | 1u << bit)) << bit;
}

TEST(Plan, IsSaidInWords) {
  const auto said = [](const Plan& plan) { return describe(plan, table()); };
  EXPECT_EQ(said({}), "none");
  EXPECT_EQ(said({.parts = 4}), "single-batch, 4 parts");
  EXPECT_EQ(said({.waves = 8}), "single-batch, 8 waves");
  EXPECT_EQ(said({.parts = 2, .waves = 4}), "single-batch, 2 parts in 4 waves each");
  EXPECT_EQ(said(plan_with("single-batch-dispatch")), "single-batch, shared under dispatch");
  EXPECT_EQ(said(plan_with("single-batch-combine", 2)),
            "single-batch, shared under combine, 2 parts");
  EXPECT_EQ(said(plan_with("four-phase")), "two-batch, four-phase");
  EXPECT_EQ(said(plan_with("four-phase", 4, 31)), "two-batch, four-phase, 4 parts, 31 of 64 first");
  Order mine = serial_order();
  mine.name = "mine";
  const OrderTable more = OrderTable::with({mine});
  EXPECT_EQ(describe({.order = table().size(), .parts = 2}, more), "single-batch, mine, 2 parts");
}

TEST(Plan, HasAKind) {
  EXPECT_EQ(kind_of({}, table()), PlanKind::none);
  EXPECT_EQ(kind_of({.parts = 2}, table()), PlanKind::single_batch);
  EXPECT_EQ(kind_of({.waves = 2}, table()), PlanKind::single_batch);
  EXPECT_EQ(kind_of(plan_with("single-batch-combine"), table()), PlanKind::single_batch);
  EXPECT_EQ(kind_of(plan_with("sglang-decode", 4), table()), PlanKind::two_batch);
}

// SGLang starts the halves of a prompt together, and the second half of answers two stages behind.
TEST(Plan, AForcedKindBeginsWithTheOrdersOfItsSystem) {
  using enum OverlapChoice::Mode;
  const auto name = [](OverlapChoice choice, Phase phase) {
    return table().at(first_plan(choice, phase, table()).order).name;
  };
  EXPECT_EQ(name({.mode = two_batch}, Phase::prefill), "sglang-prefill");
  EXPECT_EQ(name({.mode = two_batch}, Phase::decode), "sglang-decode");
  EXPECT_EQ(name({.mode = single_batch}, Phase::decode), "single-batch-combine");
  EXPECT_EQ(name({.mode = order, .order = table().find("lightllm-prefill")}, Phase::prefill),
            "lightllm-prefill");
  EXPECT_EQ(first_plan({}, Phase::decode, table()), Plan{});
}

TEST(Plan, LanesOfHalvesAndPartsAreTheirOwn) {
  std::set<int> lanes;
  for (int half = 0; half < 2; ++half)
    for (int part = 0; part < kMaxParts; ++part) lanes.insert(lane_of(half, part));
  EXPECT_EQ(lanes.size(), size_t{2} * kMaxParts);
}

}  // namespace
}  // namespace hocket
