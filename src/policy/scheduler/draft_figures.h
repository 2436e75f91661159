// Figures of drafts, as SGLang counts them. Pure.
#pragma once

#include <cstdint>
#include <numeric>

#include "policy/scheduler/scheduler_counters.h"

namespace hocket {

// Return all drafts so far, and those that saved a step.
inline uint64_t num_drafts_of(const SchedulerCounters& counts) {
  return std::accumulate(counts.drafted_total.begin(), counts.drafted_total.end(), uint64_t{0});
}
inline uint64_t num_held_of(const SchedulerCounters& counts) {
  return std::accumulate(counts.held_total.begin(), counts.held_total.end(), uint64_t{0});
}
// Returns the tokens that an answer with drafts got from a step, mean of all so far; 0: no drafts.
inline double accept_length_of(const SchedulerCounters& counts) {
  const auto num_verified = static_cast<double>(counts.num_verified_total);
  return num_verified > 0 ? 1 + static_cast<double>(num_held_of(counts)) / num_verified : 0;
}
// Returns the share of all drafts so far that held; 0: no drafts.
inline double accept_rate_of(const SchedulerCounters& counts) {
  const auto num_drafts = static_cast<double>(num_drafts_of(counts));
  return num_drafts > 0 ? static_cast<double>(num_held_of(counts)) / num_drafts : 0;
}

}  // namespace hocket
