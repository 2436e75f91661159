// Names and properties of the rules by which waiting requests are ordered, and of what those that
// run do meanwhile. The rules themselves: waiting_queue.h, prefix_order.h, request_groups.h;
// schedule.cc.   Source: docs/contracts/engine.md.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace hocket {

enum class SchedulePolicy : uint8_t {
  fcfs,                    // first come, first served
  lpm,                     // longest cached prefix first
  dfs_weight,              // the part of the prefix tree that most of them share first
  hrrn,                    // rows computed since arrival / rows of its own, highest first
  shortest_prefill_first,  // fewest rows to compute first
  lof,                     // most new tokens asked for first
  random,                  // drawn, with a seed; a drawn one stays the head until it runs
  routing_key,             // keys that most running requests have first
  fair,                    // of the client that was served least
};

// What running requests do while prompts are computed.
enum class PrefillPolicy : uint8_t {
  prefill_first,  // they wait a step
  mixed,          // their rows join the chunk
  latency,        // mixed, and the chunk is no longer than measured steps allow for their goal
};

// Errors: bad_value, with the names there are.
Result<PrefillPolicy> parse_prefill_policy(std::string_view name);
std::string_view prefill_policy_name(PrefillPolicy policy);
Result<SchedulePolicy> parse_schedule_policy(std::string_view name);
std::string_view schedule_policy_name(SchedulePolicy policy);
// In the order of the enumeration.
std::span<const std::string_view> schedule_policy_names();

// Orders by what the prefix cache holds: without a cache it is fcfs.
constexpr bool is_cache_aware(SchedulePolicy policy) {
  return policy == SchedulePolicy::lpm || policy == SchedulePolicy::dfs_weight ||
         policy == SchedulePolicy::hrrn || policy == SchedulePolicy::shortest_prefill_first;
}
// Orders groups of requests (request_groups.h).
constexpr bool is_grouped(SchedulePolicy policy) {
  return policy == SchedulePolicy::fair || policy == SchedulePolicy::routing_key;
}

}  // namespace hocket
