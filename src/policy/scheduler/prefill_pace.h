// Limits the rows of prompts in a pass under PrefillPolicy::latency, so that the step with them
// takes no longer than its goal. Other policies: no limit. Thread: engine.
#pragma once

#include <memory>
#include <span>

#include "base/clock.h"
#include "policy/scheduler/batch.h"
#include "policy/scheduler/request.h"
#include "policy/scheduler/scheduler_options.h"
#include "policy/scheduler/step_times.h"

namespace hocket {

// The part that outlives a pass.
struct LatencyPacing {
  StepTimes times;
  int chunk_tokens = 0;  // rows that the first prompt of the last pass was allowed
  int num_drafts = 0;    // those of the last step with answers; as many are expected in the next
};

// Lives for one pass.
class PrefillPace {
 public:
  // Both outlive it. decoding: the requests with rows of answers in the step.
  PrefillPace(const SchedulerOptions& options, LatencyPacing& pacing,
              std::span<const std::unique_ptr<Request>> decoding);
  // Returns the most rows that a prompt whose next row is at `begin` may add to the batch. The
  // first prompt gets at least a page.
  int max_rows(const Batch& batch, int begin);

 private:
  const SchedulerOptions& options_;
  LatencyPacing& pacing_;
  StepShape decoding_;
  Duration goal_{};
};

}  // namespace hocket
