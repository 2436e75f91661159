// Refuses requests that the engine cannot serve, before they wait. Thread: any.
#pragma once

#include "base/result.h"
#include "engine/plan/engine_info.h"
#include "policy/scheduler/request.h"

namespace hocket {

// Checks one request. Errors: invalid_request (empty prompt, token out of the vocabulary, a grammar
// on a server without), context_length_exceeded.
Result<void> check_input(const RequestInput& input, const EngineInfo& info);

// Checks the room in the queue: num_queued texts wait, at most max_queued may. A text that is not
// the first of its request is accepted while less than half of max_queued wait, so that requests of
// many texts leave room for others. With priorities the scheduler decides which text makes room.
// Errors: invalid_request if the request has more texts than could ever wait; queue_full.
Result<void> check_queue(const RequestInput& input, int num_queued, int max_queued,
                         bool priorities);

}  // namespace hocket
