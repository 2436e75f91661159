// Names and properties of two choices: in which order waiting requests are tried, and what running
// requests do meanwhile. The rules are in waiting_queue.h, prefix_order.h, request_groups.h and
// prefill_pass.cc.   Source: docs/contracts/engine.md.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"

namespace hocket {

enum class SchedulePolicy : uint8_t {
  fcfs,                    // first come, first served
  lpm,                     // longest cached prefix first
  dfs_weight,              // the branch of the prefix tree that most requests share first
  hrrn,                    // rows computed since its arrival / its own rows, highest first
  shortest_prefill_first,  // fewest rows to compute first
  lof,                     // most requested new tokens first
  random,                  // drawn, with a seed; stays the head until it runs
  routing_key,             // routing keys of most running requests first
  fair,                    // requests of the client that was served least first
};

// Says what running requests do while prompts are computed.
enum class PrefillPolicy : uint8_t {
  prefill_first,  // they wait a step
  mixed,          // their rows join the chunk
  // mixed, but chunks are so short that steps keep the goal for the time between tokens
  latency,
};

// Errors: bad_value; its fix lists the names.
Result<PrefillPolicy> parse_prefill_policy(std::string_view name);
std::string_view prefill_policy_name(PrefillPolicy policy);
Result<SchedulePolicy> parse_schedule_policy(std::string_view name);
std::string_view schedule_policy_name(SchedulePolicy policy);
// Returns the names in the order of the enumeration.
std::span<const std::string_view> schedule_policy_names();

// Returns true if the policy orders by cached prefixes; without a prefix cache it becomes fcfs.
constexpr bool is_cache_aware(SchedulePolicy policy) {
  return policy == SchedulePolicy::lpm || policy == SchedulePolicy::dfs_weight ||
         policy == SchedulePolicy::hrrn || policy == SchedulePolicy::shortest_prefill_first;
}

}  // namespace hocket
