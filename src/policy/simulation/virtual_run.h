// Plays a trace through the real scheduler in virtual time, on one host or several: each step lasts
// as long as the step model says, pages travel at the speed of a link, and nothing else takes time.
// Each answer has the length that the trace gives. The same trace, model and options give the same
// results to the last bit.   Thread: any one.
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

// Hosts that take requests in turn. With num_prefill some compute prompts alone
// (--disaggregation-mode): the pages of a step travel when it ends, over the link of the host that
// computed them and that of the host that answers.
struct VirtualHosts {
  int num_prefill = 0;  // 0: all hosts do both
  int num_others = 1;   // that answer
  double link_bytes_per_s = 1.25e9, kv_bytes_per_token = 0;
};

// Errors: bad_value if a scheduler stops although requests wait, or the run takes over 100 years.
Result<VirtualRun> run_in_virtual_time(const Trace& trace, const StepModel& model,
                                       const SchedulerOptions& options,
                                       const VirtualHosts& hosts = {});

}  // namespace hocket
