// Makes requests of what callers ask for. Thread: engine.
#pragma once

#include <memory>

#include "base/result.h"
#include "policy/scheduler/request.h"
#include "policy/scheduler/scheduler_options.h"

namespace hocket {

// Refuses a request that is too long for the model or can never fit into the memory, and a priority
// while they are refused. Errors: context_length_exceeded, request_too_big, invalid_request.
Result<void> check_request(const RequestInput& input, const SchedulerOptions& options);

// Returns the priority by which the scheduler sorts: larger is first.
int priority_of(const RequestInput& input, const PriorityOptions& rules);

// Precondition: check_request() accepts the input.
std::unique_ptr<Request> make_request(RequestInput input, const SchedulerOptions& options);

}  // namespace hocket
