// The lines users paste and scripts parse, and the throughput behind them.
//   Prefill batch, #new-seq: 1, #new-token: 18, #cached-token: 0, token usage: 0.00, #running-req:
//   0, #queue-req: 0, ... Decode batch, #running-req: 3, #token: 96, token usage: 0.01, gen
//   throughput (token/s): 812.40, #queue-req: 0
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "policy/scheduler/batch.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

inline constexpr int kDecodeLogInterval = 40;  // steps

// Thread: engine.
class StepLog {
 public:
  void note(const Batch& batch, const SchedulerStats& stats, TimePoint now, Duration took);
  double gen_throughput() const {
    return gen_throughput_;
  }  // tokens/s over the last window of about a second

 private:
  int decode_steps_ = 0;
  int64_t window_tokens_ = 0;
  TimePoint window_begin_{};
  double gen_throughput_ = 0;
};

}  // namespace hocket
