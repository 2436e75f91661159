// Ends requests that waited or ran for too long. Thread: engine.
#pragma once

#include "base/clock.h"
#include "policy/scheduler/request_lists.h"
#include "policy/scheduler/scheduler_counters.h"
#include "policy/scheduler/scheduler_options.h"

namespace hocket {

// Returns true if an active request ended.
bool end_timed_out(RequestLists& lists, const SchedulerOptions& options,
                   SchedulerCounters& counters, TimePoint now);

}  // namespace hocket
