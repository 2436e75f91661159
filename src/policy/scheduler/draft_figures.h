// Figures of drafts, as SGLang counts them. Pure.
#pragma once

#include <numeric>

#include "policy/scheduler/scheduler_counters.h"

namespace hocket {

// Returns the tokens that an answer with drafts got from a step, mean of all so far; 0: no drafts.
inline double accept_length_of(const SchedulerCounters& counts) {
  const auto num_held = std::accumulate(counts.held_total.begin(), counts.held_total.end(), 0.0);
  return counts.num_verified_total > 0
             ? 1 + num_held / static_cast<double>(counts.num_verified_total)
             : 0;
}
// Returns the share of all drafts so far that held; 0: no drafts.
inline double accept_rate_of(const SchedulerCounters& counts) {
  const auto num_drafts =
      std::accumulate(counts.drafted_total.begin(), counts.drafted_total.end(), 0.0);
  const auto num_held = std::accumulate(counts.held_total.begin(), counts.held_total.end(), 0.0);
  return num_drafts > 0 ? num_held / num_drafts : 0;
}

}  // namespace hocket
