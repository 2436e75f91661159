#include <gtest/gtest.h>

#include "base/count_allocations.h"
#include "compute/overlap/ledger.h"

namespace hocket {
namespace {

// More than a pass can have, with spans and without.
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
      const Ledger::Beside beside(&ledger);
      ledger.begin_op(i % 4, Op::dispatch_wait, i % 2);
      const TimePoint now = clock.now();
      ledger.waited(i % kMaxLanes, static_cast<MessageKind>(i % kNumMessageKinds), {},
                    {.peers_posted = now, .last_byte = now, .wait_in = now, .wait_out = tick()});
      ledger.end_op();
    }
    ledger.end_step(tick());
  }
  EXPECT_EQ(num_allocations - before, 0);
}

}  // namespace
}  // namespace hocket
