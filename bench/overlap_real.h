// `hocket bench overlap --real`: forces every order in turn on a model with random weights. The six
// runs of each step are interleaved, and the live planner plays a step in each round. Ranks are
// threads of this process with a modelled link, or processes over UCX that were started by hand.
#pragma once

#include "base/result.h"
#include "bench/overlap.h"
#include "bench/overlap_report.h"

namespace hocket {

// Adds each point to `report` on rank 0. Errors: bad_value, io, lost_rank, internal (a plan changed
// a bit of the result).
Result<void> play_real(const BenchOverlapOptions& options, OverlapReport& report);

}  // namespace hocket
