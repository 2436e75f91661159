// The report that a rank sends to the others about the step that it has just played, so that the
// planning rank knows the slowest. It travels in the agreement of the next step, in host byte
// order. Times are microseconds, summed over layers and halves.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "compute/overlap/op.h"
#include "compute/overlap/plan.h"
#include "compute/overlap/stage_times.h"

namespace hocket {

struct StepReport {
  uint32_t plan = 0;       // the PlanId that the step was played by
  uint32_t rows = 0;       // rows of this rank
  uint32_t kv_tokens = 0;  // keys that this rank read, at most 2^32 - 1
  uint8_t phase = 0;       // Phase
  uint8_t is_valid = 0;    // a step was played and booked
  uint8_t is_exact = 0;    // 1: arrivals are exact; 0: the busy times are upper bounds
  uint8_t zero = 0;
  std::array<float, kNumStages> compute_us{};  // by index_of(Stage), without waiting
  float other_us = 0;                          // embedding, head, sampling, engine
  float exposed_us = 0, waiting_us = 0;        // waits for transfers; waits for slower ranks
  float step_us = 0;
  // The link's work for all dispatches and all combines: how long it carried them, their bytes
  // (sent or received, whichever is more), and the least latency seen.
  float dispatch_busy_us = 0, combine_busy_us = 0;
  float dispatch_kb = 0, combine_kb = 0;
  float latency_us = 0;

  // `kind` is a number of LayerKinds.
  double compute(Op op, int kind = 0) const { return compute_us[index_of({op, kind})]; }
};
static_assert(sizeof(StepReport) == 16 + 4 * kNumStages + 36);
static_assert(std::is_trivially_copyable_v<StepReport>);

// Combines all ranks' reports of one step. Each field is the largest of the valid reports, because
// the slowest rank sets the pace; latency_us and is_exact are the least; the plan is that of the
// first valid report, since all ranks play one.
StepReport slowest_of(std::span<const StepReport> reports);

}  // namespace hocket
