// The counts of a scheduler since its start. SchedulerStats holds a copy of all, so a new counter
// needs a line here and the code that counts; server/reports/metrics.cc shows it. Every member is
// made of uint64_t, which add() relies on. Thread: engine.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "policy/scheduler/batch.h"

namespace hocket {

struct SchedulerCounters {
  // Requests retracted because memory was short, and their tokens.
  uint64_t num_retracted_total = 0;
  uint64_t retracted_input_total = 0, retracted_output_total = 0;
  // Requests that made way for a larger priority: running ones were sent back to the queue
  // (preempted), waiting ones were removed from a full queue (displaced).
  uint64_t num_preempted_total = 0, num_displaced_total = 0;
  uint64_t num_timed_out_total = 0;  // ended by a timeout
  // Times that a prompt waited a pass because its beginning was being computed.
  uint64_t num_prefix_waits_total = 0;
  uint64_t prompt_tokens_total = 0, cached_tokens_total = 0, generated_tokens_total = 0;
  // Prompt tokens that were computed although their pages were found, since no state was kept there
  // (models with delta nets).
  uint64_t recomputed_tokens_total = 0;
  // Tokens whose pages were read from a slower tier (Scheduler::restore).
  uint64_t restored_tokens_total = 0;
  // The part of generated_tokens_total that took no step of its own.
  uint64_t forced_tokens_total = 0;
  // Slices with drafts; their drafts, and those of them that saved a step, by place.
  uint64_t num_verified_total = 0;
  std::array<uint64_t, kMaxDrafts> drafted_total{}, accepted_total{};

  // Adds the counts of another rank.
  void add(const SchedulerCounters& other) {
    using Counts = std::array<uint64_t, sizeof(SchedulerCounters) / sizeof(uint64_t)>;
    auto sums = std::bit_cast<Counts>(*this);
    const auto more = std::bit_cast<Counts>(other);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
    *this = std::bit_cast<SchedulerCounters>(sums);
  }
};

}  // namespace hocket
