// What no engine can serve, told at once.   Thread: any.
#pragma once

#include "base/result.h"
#include "engine/engine_info.h"
#include "policy/scheduler/request.h"

namespace hocket {

// Errors: invalid_request (empty prompt, token out of the vocabulary, a grammar where there are
// none), context_length_exceeded.
Result<void> check_input(const RequestInput& input, const EngineInfo& info);

// num_queued: requests that wait, at most max_queued. Texts of a request behind its first may fill
// half of that, so that no request, nor many together, keep the others out. With priorities the
// scheduler decides which one has to go. Errors: invalid_request (it never fits), queue_full.
Result<void> check_queue(const RequestInput& input, int num_queued, int max_queued,
                         bool priorities);

}  // namespace hocket
