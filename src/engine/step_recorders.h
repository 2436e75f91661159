// The two records of the steps of the ranks of this process: a profile on request, and the newest
// steps always. Owner: the engine. Thread: any.
#pragma once

#include <memory>

#include "engine/runner/runner.h"
#include "engine/stats/profiler.h"
#include "engine/stats/recent_steps.h"

namespace hocket {

class StepRecorders {
 public:
  // The ranks of this process are [first, first + num_here) of `num`.
  struct Ranks {
    int first = 0, num_here = 1, num = 1;
  };
  StepRecorders(const Ranks& ranks, const Runner& runner);

  Profiler& profiler() { return profiler_; }
  RecentSteps& recent() { return recent_; }

 private:
  const std::shared_ptr<const OrderTable> orders_;  // both name plans by it
  Profiler profiler_;
  RecentSteps recent_;
};

}  // namespace hocket
