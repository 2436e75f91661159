// Refuses requests that the engine cannot serve, before they wait. Thread: any.
#pragma once

#include "base/result.h"
#include "engine/plan/engine_info.h"
#include "policy/scheduler/request.h"

namespace hocket {

// Checks one request. Errors: invalid_request (empty prompt, token out of the vocabulary, a grammar
// on a server without), context_length_exceeded.
Result<void> check_input(const RequestInput& input, const EngineInfo& info);

}  // namespace hocket
