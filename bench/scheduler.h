// `hocket bench scheduler`: times the scheduler's part of a step, without a model.
#pragma once

namespace hocket {

struct BenchSchedulerOptions {
  bool quick = false;  // fewer steps, and only the sizes that have a goal
  bool json = false;   // one object a line: name, us_p50, us_p99, goal_us, ratio
};

// Times schedule() and commit() with 1 to 1,024 running and 0 to 10,000 waiting requests with
// prompts of 2,000 tokens and a prefix tree of 1,000,000 tokens; then times a radix match of 32,768
// tokens. ratio is the median over the goal, if there is one: 1 or less reaches it. Returns the
// exit status 0 even if a goal is missed, since the goals were set on one machine.
int bench_scheduler(BenchSchedulerOptions options);

}  // namespace hocket
