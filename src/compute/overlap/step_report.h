// What a rank tells the others of the step that it has just played, so that whoever plans knows the
// slowest. Travels in the agreement of the next step, in host order. Times in microseconds, summed
// over layers and halves.
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
  uint32_t plan = 0;       // PlanId of how it was played
  uint32_t rows = 0;       // here
  uint32_t kv_tokens = 0;  // keys read here, at most 2^32 - 1
  uint8_t phase = 0;       // Phase
  uint8_t is_valid = 0;    // a step was played and booked
  uint8_t is_exact = 0;    // arrivals were seen when they were; else busy is an upper bound
  uint8_t zero = 0;
  std::array<float, kNumOps> compute_us{};  // without waiting
  float beside_us = 0;                      // embedding, head, sampling, engine
  float exposed_us = 0, waiting_us = 0;     // for transfers; for slower ranks
  float step_us = 0;
  // On the wire, of all dispatches and all combines: how long the link carried them, and bytes of
  // the larger direction; and the least latency seen.
  float dispatch_busy_us = 0, combine_busy_us = 0;
  float dispatch_kb = 0, combine_kb = 0;
  float latency_us = 0;

  double compute(Op op) const { return compute_us[static_cast<size_t>(op)]; }
};
static_assert(sizeof(StepReport) == 16 + 4 * kNumOps + 36);
static_assert(std::is_trivially_copyable_v<StepReport>);

// Of reports of one step, each rank's: by field the largest of those that are valid, for the
// slowest rank sets the pace; the plan is theirs, which is one; the latency is the least.
StepReport slowest_of(std::span<const StepReport> reports);

}  // namespace hocket
