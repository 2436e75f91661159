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
  return std::accumulate(counts.accepted_total.begin(), counts.accepted_total.end(), uint64_t{0});
}
// Returns the tokens that an answer got from a step that verified drafts of it, a mean: the drafts
// that were accepted, and the token behind them. Other steps do not count; 0: no drafts.
inline double accept_length(uint64_t num_accepted, uint64_t num_verified) {
  if (num_verified == 0) return 0;
  return 1 + static_cast<double>(num_accepted) / static_cast<double>(num_verified);
}
inline double accept_length_of(const SchedulerCounters& counts) {
  return accept_length(num_held_of(counts), counts.num_verified_total);
}
// Returns the share of all drafts so far that were accepted; 0: no drafts.
inline double accept_rate_of(const SchedulerCounters& counts) {
  const auto num_drafts = static_cast<double>(num_drafts_of(counts));
  return num_drafts > 0 ? static_cast<double>(num_held_of(counts)) / num_drafts : 0;
}

}  // namespace hocket
