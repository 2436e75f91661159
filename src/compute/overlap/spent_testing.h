// Spends a rank's stage times in virtual time, for tests that play plans.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "compute/comm/loopback.h"
#include "compute/overlap/stage_player_testing.h"

namespace hocket::testing {

// Every pause of a rank switches between threads, which takes most of such a test's time. So
// operations between which the rank neither sends nor waits are spent in one pause; only their sum
// can be seen. An operation that starts a transfer must take some time.
class SpentTimes final : public StageWork {
 public:
  SpentTimes(LoopbackHub& hub, int rank) : hub_(hub), rank_(rank) {}
  void begin_op(int, Op op, int) override {
    op_ = op;
    if (op == Op::dispatch_wait || op == Op::combine_wait) spend_rest();
  }
  void spend(Duration time) override {
    unspent_ += time;
    if (sends()) spend_rest();
  }
  void end_op() override {
    if (sends()) {
      EXPECT_EQ(unspent_.count(), 0) << op_name(op_) << " took no time";
    }
  }
  // To be called after the step, too.
  void spend_rest() {
    if (unspent_.count() > 0) hub_.spend(rank_, std::exchange(unspent_, Duration{}));
  }

 private:
  // Experts are sent back in waves, and wait for further parts.
  bool sends() const {
    return op_ == Op::dispatch_start || op_ == Op::experts || op_ == Op::combine_start;
  }

  LoopbackHub& hub_;
  const int rank_;
  Op op_ = Op::attn_in;
  Duration unspent_{};
};

}  // namespace hocket::testing
