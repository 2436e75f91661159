// `hocket bench overlap --real`: every order forced in turn on a model with random weights, six
// runs of each step interleaved, then the live planner. Ranks are threads of this process with a
// modelled link, or processes started by hand over UCX.
#pragma once

#include "base/result.h"
#include "bench/overlap.h"
#include "bench/overlap_report.h"

namespace hocket {

// Points go to `report` on rank 0. Errors: bad_value, io, lost_rank, internal (a plan changed a
// bit).
Result<void> play_real(const BenchOverlapOptions& options, OverlapReport& report);

}  // namespace hocket
