// Tests plans in a whole service: with any plan, forced or chosen live, an answer has the bits that
// it has on one rank alone, and the booked times add up.
#include <cstdio>
#include <fstream>

#include "base/log.h"
#include "compute/overlap/order_yaml.h"
#include "engine/tests/probe.h"
#include "engine/tests/service.h"

namespace hocket {
namespace {

using namespace testing;
using std::chrono::milliseconds;

constexpr int kOverlapRequests = 10;

// Settings of a service, and the kinds of plans that it must have played.
struct OverlapCase {
  const char* overlap;
  void (*change)(ServerSettings&);
  std::vector<PlanKind> kinds;
};

void plainly(ServerSettings&) {}
void mixed(ServerSettings& s) {
  s.scheduler.prefill_policy = "mixed";
  s.scheduler.chunked_prefill_size = 32;
}
void over_a_link(ServerSettings& s) {
  s.parallel.ep_link_gbit = 0.5;
  s.parallel.ep_link_latency_us = 100;
}
void mixed_over_a_link(ServerSettings& s) {
  mixed(s);
  over_a_link(s);
  s.parallel.tbo_token_distribution_threshold = 0;  // no sequence is cut
}

const OverlapCase kOverlapCases[] = {
    {"none", mixed, {PlanKind::none}},
    {"single-batch", plainly, {PlanKind::single_batch}},
    {"single-batch-combine", over_a_link, {PlanKind::single_batch}},
    {"two-batch", mixed_over_a_link, {PlanKind::two_batch}},
    {"four-phase", mixed, {PlanKind::two_batch}},
    {"sglang-decode", over_a_link, {PlanKind::two_batch}},
    {"lightllm-decode", plainly, {PlanKind::two_batch}},
    {"auto", mixed_over_a_link, {}},
    {"auto", plainly, {}},
};

std::vector<Answer> alone_on_one_rank(const Form& form) {
  return alone(settings_of(form, 1), traffic(kOverlapRequests));
}

// Sends the same requests at random times to a service.
void expect_serves(Service& service, const std::vector<Answer>& want) {
  ASSERT_TRUE(service.works());
  std::mt19937 random(3);
  std::vector<RequestId> ids;
  for (RequestInput& input : traffic(kOverlapRequests)) {
    ids.push_back(*service.submit(std::move(input)));
    if (random() % 2 == 0) std::this_thread::sleep_for(milliseconds(random() % 6));
  }
  EXPECT_TRUE(service.read_all());
  for (size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    const Answer& got = service.answer(ids[i]);
    ASSERT_EQ(got.summary.finish, want[i].summary.finish) << got.summary.error.message;
    ASSERT_NO_FATAL_FAILURE(expect_same(got, want[i]));
  }
}

// Expects that every moment of a step is booked once. ledger_test checks the idle time more
// closely; here other processes may use these cores.
void expect_adds_up(const OverlapStats& s) {
  double sum = s.other_seconds + s.exposed_seconds + s.waiting_seconds + s.idle_seconds;
  for (const double op : s.compute_seconds) sum += op;
  EXPECT_NEAR(sum, s.step_seconds, 1e-6 * s.step_seconds);
  EXPECT_LT(s.idle_seconds, 0.5 * s.step_seconds);
  EXPECT_GT(s.step_seconds, 0);
}

class OverlapOfRanks : public ::testing::TestWithParam<Form> {
 protected:
  void SetUp() override { log::set_level(log::Level::error); }
  void TearDown() override { log::set_level(log::Level::info); }
};

TEST_P(OverlapOfRanks, ChangesNoBitOfAnAnswer) {
  const std::vector<Answer> want = alone_on_one_rank(GetParam());
  for (const OverlapCase& way : kOverlapCases) {
    SCOPED_TRACE(way.overlap);
    ServerSettings settings = settings_of(GetParam(), 2);
    settings.parallel.dp_routing = "round-robin";
    settings.parallel.overlap = way.overlap;
    way.change(settings);
    Service service(settings);
    ASSERT_NO_FATAL_FAILURE(expect_serves(service, want));
    service.engine().stop();

    const EngineStats stats = service.engine().stats();
    for (const RankStats& rank : stats.ranks) {
      expect_adds_up(rank.overlap);
      EXPECT_EQ(rank.overlap.unknown_plans, 0u);
      EXPECT_EQ(rank.overlap.steps, stats.ranks[0].overlap.steps);  // all play the same
    }
    // The first step after a sleep may begin without a plan.
    const auto& steps = stats.overlap.steps;
    for (const PlanKind kind : way.kinds)
      EXPECT_GT(steps[static_cast<size_t>(kind)], 9 * (steps[0] + steps[1] + steps[2]) / 10);
    const OverlapView view = service.engine().overlap();
    EXPECT_EQ(view.choice, way.overlap);
    EXPECT_EQ(view.ranks.size(), 2u);
    EXPECT_TRUE(view.planner.has_value());
  }
}

// Each step has another random plan, or a number that is no plan: answers stay the same, and all
// ranks play the same.
TEST_P(OverlapOfRanks, MayChangeAtEveryStep) {
  const std::vector<Answer> want = alone_on_one_rank(GetParam());
  for (const int num_ranks : {2, 4}) {
    SCOPED_TRACE(fmt::format("{} ranks", num_ranks));
    ServerSettings settings = settings_of(GetParam(), num_ranks);
    settings.parallel.dp_routing = "round-robin";
    settings.parallel.ep_link_latency_us = 50;
    mixed(settings);
    std::mt19937 random(9);
    const auto any_plan = [&](Phase) -> PlanProposal {
      const OrderTable& orders = OrderTable::builtin();
      Plan plan{.order = static_cast<int>(random() % static_cast<uint32_t>(orders.size())),
                .parts = 1 << random() % 3,
                .waves = 1 << random() % 2};
      if (orders.at(plan.order).num_halves == 2) plan.share = 1 + static_cast<int>(random() % 63);
      if (random() % 16 == 0)
        return {.id = PlanId{0xffff'0000 + static_cast<uint32_t>(random() % 100)}};
      return {.id = id_of(plan), .is_trial = random() % 2 == 0};
    };
    Service service({.settings = settings, .stall_timeout = kPatience},
                    [&](Engine& engine) { EngineProbe::propose_by(engine, any_plan); });
    ASSERT_NO_FATAL_FAILURE(expect_serves(service, want));
    service.engine().stop();
    const EngineStats stats = service.engine().stats();
    for (const RankStats& rank : stats.ranks) {
      expect_adds_up(rank.overlap);
      EXPECT_EQ(rank.overlap.steps, stats.ranks[0].overlap.steps);
      EXPECT_EQ(rank.overlap.unknown_plans, stats.ranks[0].overlap.unknown_plans);
      EXPECT_GT(rank.overlap.unknown_plans, 0u);
      EXPECT_GT(rank.overlap.trial_steps, 0u);
      for (const uint64_t count : rank.overlap.steps) EXPECT_GT(count, 0u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, OverlapOfRanks,
                         ::testing::Values(kBundled, kMoe, kMla, kInt8Kv, kDelta, kMimo),
                         [](const auto& param) { return std::string(param.param.name); });

class OverlapTest : public ::testing::Test {
 protected:
  void SetUp() override { log::set_level(log::Level::error); }
  void TearDown() override { log::set_level(log::Level::info); }
};

// The link is slower than all compute: waits are waits for the wire, and two halves hide some of
// it.
TEST_F(OverlapTest, WhatAStepWaitedForIsToldApart) {
  for (const char* overlap : {"none", "two-batch"}) {
    SCOPED_TRACE(overlap);
    ServerSettings settings = settings_of(kBundled, 2);
    settings.parallel.overlap = overlap;
    settings.parallel.ep_link_latency_us = 1000;
    Service service(settings);
    ASSERT_TRUE(service.works());
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(service.submit(long_one(i)).has_value());
    ASSERT_TRUE(service.read_all());
    service.engine().stop();
    const OverlapStats stats = service.engine().stats().overlap;
    expect_adds_up(stats);
    // Each of the four messages of a layer takes a millisecond.
    EXPECT_GT(stats.exposed_seconds, 0.2 * stats.step_seconds);
    EXPECT_GT(stats.compute_seconds[static_cast<size_t>(Op::experts)], 0);
    const bool hides = std::string(overlap) != "none";
    EXPECT_EQ(stats.steps[static_cast<size_t>(PlanKind::two_batch)] > 0, hides);
    EXPECT_EQ(stats.half_imbalance > 0, hides);
    EXPECT_EQ(stats.plan[static_cast<size_t>(Phase::decode)].starts_with(overlap), true);
    EXPECT_TRUE(stats.exact_arrival);
  }
}

TEST_F(OverlapTest, EachPhasePlaysTheOrderOfItsFlag) {
  ServerSettings settings = settings_of(kMoe, 2);
  settings.parallel.overlap_order_prefill = "lightllm-prefill";
  settings.parallel.overlap_order_decode = "none";
  Service service(settings);
  ASSERT_NO_FATAL_FAILURE(expect_serves(service, alone_on_one_rank(kMoe)));
  service.engine().stop();
  const OverlapStats stats = service.engine().stats().overlap;
  EXPECT_EQ(stats.plan[index_of(Phase::prefill)], "two-batch, lightllm-prefill");
  EXPECT_EQ(stats.plan[index_of(Phase::decode)], "none");
  EXPECT_GT(stats.steps[static_cast<size_t>(PlanKind::two_batch)], 0u);
  EXPECT_GT(stats.steps[static_cast<size_t>(PlanKind::none)], 0u);
}

// The ranks' table also has the user's orders, and the first of them is played.
TEST_F(OverlapTest, AnOrderOfTheUserIsPlayed) {
  const std::string path = ::testing::TempDir() + "/user_order.yaml";
  const OrderTable& known = OrderTable::builtin();
  Order mine = known.at(known.find("lightllm-prefill"));
  mine.name = "mine";
  std::ofstream(path) << to_yaml(mine);
  ServerSettings settings = settings_of(kMoe, 2);
  settings.parallel.overlap_plan = path;
  Service service(settings);
  ASSERT_NO_FATAL_FAILURE(expect_serves(service, alone_on_one_rank(kMoe)));
  EXPECT_EQ(service.engine().overlap().choice, "mine");
  EXPECT_NE(service.engine().stats().overlap.plan[0].find("mine"), std::string::npos);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace hocket
