// Says which running request goes back to the queue when pages are short. Thread: engine.
#pragma once

#include <memory>
#include <span>

#include "policy/scheduler/request.h"

namespace hocket {

// Returns the request whose retraction loses least: the one with the fewest generated tokens, then
// the longest prompt, then the newest. So the request with the most generated tokens is never
// chosen and finishes. running: in order of admission, at least two.
const Request& retraction_victim(std::span<const std::unique_ptr<Request>> running);

}  // namespace hocket
