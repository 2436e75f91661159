// A trace through the real scheduler in virtual time: each step lasts as long as the step model
// says, and nothing else takes any. Requests run to the length that the trace gives. The same
// trace, model and options give the same figures to the last bit.   Thread: any one.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/simulation/step_model.h"
#include "policy/simulation/trace.h"

namespace hocket {

struct VirtualRun {
  double seconds = 0;  // from the first request to the last token
  int num_ok = 0;
  int num_refused = 0;  // queue full, or too long for the pool
  int num_failed = 0;   // ended by the scheduler before their length: a time-out
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;  // of the good ones
  uint64_t num_steps = 0, num_retractions = 0;
  std::vector<double> ttft_ms, itl_ms, e2e_ms;  // one gap for each token but the first

  RunFigures figures() const;
};

// Errors: bad_value where the scheduler stops although requests wait.
Result<VirtualRun> run_in_virtual_time(const Trace& trace, const StepModel& model,
                                       const SchedulerOptions& options);

}  // namespace hocket
