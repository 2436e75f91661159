// Sends requests back to the queue when pages are short. Thread: engine.
#pragma once

#include <memory>
#include <span>

#include "base/clock.h"
#include "policy/scheduler/kv_memory.h"
#include "policy/scheduler/new_token_ratio.h"
#include "policy/scheduler/request_lists.h"
#include "policy/scheduler/scheduler_counters.h"

namespace hocket {

// Returns the request whose retraction loses least: the one with the fewest generated tokens, then
// the longest prompt, then the newest. So the request with the most generated tokens is never
// chosen and finishes. running: in order of admission, at least two.
const Request& retraction_victim(std::span<const std::unique_ptr<Request>> running);

// Frees memory for the next rows of all running requests, in this order: cached pages, prompts in
// chunks (which have generated nothing yet; the newest first), running requests. Returns how many
// requests were sent back, and raises the ratio if any were.
int retract_until_decode_fits(RequestLists& lists, KvMemory& memory, NewTokenRatio& ratio,
                              SchedulerCounters& counters, TimePoint now);

}  // namespace hocket
