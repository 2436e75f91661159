// Chooses the threads that compute on a rank, from flags and the machine. Thread: any.
#pragma once

#include "base/machine.h"
#include "base/result.h"
#include "base/worker_pool.h"
#include "core/server_settings.h"

namespace hocket {

// Chooses the number of workers and their cores. Errors: bad_value (--cpu-bind, --num-threads).
Result<WorkerPool::Options> choose_workers(const ComputeSettings& settings, const Machine& machine);

}  // namespace hocket
