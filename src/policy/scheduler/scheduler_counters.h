// The counts of a scheduler since its start. SchedulerStats holds a copy of all. A new event is a
// member and a row here, and the code that counts it. Every member is made of uint64_t, which add()
// relies on. Thread: engine.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "core/named_counter.h"
#include "policy/scheduler/batch.h"

namespace hocket {

// Events that /metrics shows for each rank, one by one.
struct SchedulerEvents {
  // Requests retracted because memory was short, and their tokens.
  uint64_t num_retracted_total = 0;
  uint64_t retracted_input_total = 0, retracted_output_total = 0;
  // Requests that made way for a larger priority: running ones were sent back to the queue
  // (preempted), waiting ones were removed from a full queue (displaced).
  uint64_t num_preempted_total = 0, num_displaced_total = 0;
  uint64_t num_timed_out_total = 0;  // ended by a timeout
  // Times that a prompt waited a pass because its beginning was being computed.
  uint64_t num_prefix_waits_total = 0;
  uint64_t num_policy_fallbacks_total = 0;  // passes in which the policy fell back to fcfs
  // Pages, window pages and states evicted from the cache.
  uint64_t num_evicted_pages_total = 0, num_evicted_window_pages_total = 0;
  uint64_t num_evicted_states_total = 0;
};

inline constexpr auto kSchedulerEvents = std::to_array<NamedCounter<SchedulerEvents>>(
    {{&SchedulerEvents::num_retracted_total, "num_retracted_requests_total",
      "Times a running request was put back to the queue"},
     {&SchedulerEvents::retracted_input_total, "num_retracted_input_tokens_total",
      "Prompt tokens of requests put back to the queue"},
     {&SchedulerEvents::retracted_output_total, "num_retracted_output_tokens_total",
      "Tokens that requests put back to the queue had generated"},
     {&SchedulerEvents::num_preempted_total, "num_preempted_requests_total",
      "Times a running request gave way to a larger priority"},
     {&SchedulerEvents::num_timed_out_total, "num_timed_out_requests_total",
      "Requests that waited or ran too long"},
     {&SchedulerEvents::num_displaced_total, "num_displaced_requests_total",
      "Requests displaced in a full queue by a priority"},
     {&SchedulerEvents::num_policy_fallbacks_total, "num_policy_fallbacks_total",
      "Passes in which the policy fell back to fcfs"},
     {&SchedulerEvents::num_prefix_waits_total, "num_prefix_waits_total",
      "Times a prompt waited for another with its beginning"},
     {&SchedulerEvents::num_evicted_pages_total, "num_evicted_pages_total",
      "KV pages evicted from the prefix cache"},
     {&SchedulerEvents::num_evicted_window_pages_total, "num_evicted_window_pages_total",
      "Window pages taken from the prefix cache for other use"},
     {&SchedulerEvents::num_evicted_states_total, "num_evicted_states_total",
      "States taken from the prefix cache for other use"}});
static_assert(names_each_member(kSchedulerEvents));

struct SchedulerCounters : SchedulerEvents {
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
