// Plays a trace through the real scheduler in virtual time: each step lasts as long as the step
// model says, and nothing else takes time. Each answer has the length that the trace gives. The
// same trace, model and options give the same results to the last bit.   Thread: any one.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/simulation/step_model.h"
#include "policy/simulation/trace.h"

namespace hocket {

struct VirtualRun {
  double seconds = 0;  // from the first request to the last token
  int num_ok = 0;
  int num_refused = 0;  // the queue was full, or they were too long for the pool
  int num_failed = 0;   // ended by the scheduler before their length: a time-out
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;  // in successful requests
  uint64_t num_steps = 0, num_retractions = 0;
  std::vector<double> ttft_ms, itl_ms, e2e_ms;  // itl_ms: one gap for each token but the first

  RunFigures figures() const;
};

// Errors: bad_value if the scheduler stops although requests wait, or the run takes over 100 years.
Result<VirtualRun> run_in_virtual_time(const Trace& trace, const StepModel& model,
                                       const SchedulerOptions& options);

}  // namespace hocket
