// What no engine can serve, told at once.   Thread: any.
#pragma once

#include "base/result.h"
#include "engine/engine_info.h"
#include "policy/scheduler/request.h"

namespace hocket {

// Errors: invalid_request (empty prompt, token out of the vocabulary, a grammar where there are
// none), context_length_exceeded.
Result<void> check_input(const RequestInput& input, const EngineInfo& info);

}  // namespace hocket
