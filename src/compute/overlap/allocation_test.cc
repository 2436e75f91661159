#include <gtest/gtest.h>

#include "base/clock_testing.h"
#include "base/count_allocations_testing.h"
#include "compute/overlap/ledger.h"
#include "compute/overlap/planner.h"

namespace hocket {
namespace {

// The steps have more operations and messages than a pass can have; every second step keeps spans.
TEST(LedgerAllocations, AStepMakesNone) {
  FakeClock clock;
  Ledger ledger({.num_layers = 4, .num_ranks = 2}, clock);
  const auto tick = [&] {
    clock.advance(Duration(100));
    return clock.now();
  };
  const int64_t before = num_allocations;
  for (int step = 0; step < 4; ++step) {
    ledger.keep_spans(step % 2 == 1);
    ledger.begin_step(tick());
    ledger.begin_pass(1, {}, {}, false);
    for (int i = 0; i < 1000; ++i) {
      const Ledger::OtherWork other(&ledger);
      ledger.begin_op(i % 4, Op::dispatch_wait, i % 2);
      const TimePoint now = clock.now();
      ledger.finished(i % kMaxLanes, static_cast<MessageKind>(i % kNumMessageKinds), {},
                      {.peers_posted = now, .last_byte = now, .wait_in = now, .wait_out = tick()});
      ledger.end_op();
    }
    ledger.end_step(tick());
  }
  EXPECT_EQ(num_allocations - before, 0);
}

class AnyTimes final : public StageModel {
 public:
  StageTimes at(const Bucket& bucket) const override {
    StageTimes times;
    times.compute.fill(20.0 + bucket.rows);
    times.dispatch = times.combine = {100.0 + bucket.rows, 10};
    return times;
  }
};

// The run includes searches, changes of plan, trials, and buckets that are made and forgotten.
TEST(PlannerAllocations, AStepMakesNone) {
  FakeClock clock;
  const OrderTable& orders = OrderTable::builtin();
  const std::array kinds = {AttentionKind::linear, AttentionKind::full};
  Planner planner({.orders = &orders,
                   .layers = {.num_moe = 8, .kinds = LayerKinds(kinds)},
                   .prior = std::make_shared<AnyTimes>(),
                   .clock = &clock});
  StepReport report;
  report.is_valid = 1;
  report.compute_us.fill(200);
  report.dispatch_kb = report.combine_kb = report.dispatch_busy_us = report.combine_busy_us = 500;
  const auto play = [&](int step) {
    const int rows = 1 + step % 100 * step % 977;
    const auto phase = static_cast<Phase>(step / 4 % 2);
    report.plan = static_cast<uint32_t>(id_of(planner.choose({phase, rows, rows * step}).plan));
    report.rows = static_cast<uint32_t>(rows), report.phase = static_cast<uint8_t>(phase);
    report.kv_tokens = static_cast<uint32_t>(rows * step);
    report.step_us = static_cast<float>(2000 + 500 * (step % 3));
    planner.note({&report, 1});
  };
  for (int step = 0; step < 100; ++step) play(step);
  const int64_t before = num_allocations;
  for (int step = 100; step < 3000; ++step) play(step);
  EXPECT_EQ(num_allocations - before, 0);
  const PlannerState state = planner.state();
  EXPECT_GT(state.num_searches, 100u);
  EXPECT_GT(state.num_trial_steps, 3u);
}

}  // namespace
}  // namespace hocket
