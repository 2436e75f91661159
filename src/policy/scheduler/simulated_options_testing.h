// Random settings of the scheduler for simulations. For tests.
#pragma once

#include <algorithm>
#include <chrono>
#include <random>

#include "policy/scheduler/schedule_policy.h"
#include "policy/scheduler/scheduler.h"
#include "policy/scheduler/simulated_answers_testing.h"

namespace hocket {

struct SimulatedOptions {
  SchedulerOptions options;
  bool asks = false;  // true: it has hooks
};

template <class Pick>
void add_windows(SchedulerOptions& options, Pick& pick) {
  (pick(0, 2) == 0 ? options.window.chunk : options.window.window) =
      pick(1, 4 * options.page_tokens);
  options.max_forced = kSimulatedForced;
  const int least = 2 * window_pages_of_request(options);
  options.num_pages = std::max(options.num_pages, least) + pick(0, 40);
  options.num_window_pages = std::min(options.num_pages, least + pick(0, 12));
}

inline SimulatedOptions simulated_options(std::mt19937_64& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution(low, high)(random);
  };
  SimulatedOptions simulated;
  SchedulerOptions& options = simulated.options;
  options.num_pages = pick(4, 32);
  options.page_tokens = 1 << pick(0, 3);
  options.max_running_requests = pick(1, 12);
  options.max_decode_rows = options.max_running_requests + pick(0, 1) * pick(0, 12);
  options.eviction = static_cast<EvictionPolicy>(pick(0, kNumEvictionPolicies - 1));
  options.chunk_tokens = pick(0, 4) == 0 ? -1 : options.page_tokens * pick(1, 4) + pick(0, 3);
  options.max_prefill_tokens = std::max(options.chunk_tokens, options.page_tokens) + pick(0, 40);
  options.prefill_policy = static_cast<PrefillPolicy>(pick(0, 2));
  options.itl_goal = std::chrono::milliseconds(pick(1, 4));
  options.max_chunked_requests = pick(0, 1) == 0 ? 1 : pick(2, 4);
  options.conservativeness = pick(0, 1) * 0.5;
  options.policy =
      static_cast<SchedulePolicy>(pick(0, static_cast<int>(schedule_policy_names().size()) - 1));
  options.max_overtaken = pick(0, 12);
  options.in_batch = {.max_cached = pick(-1, 8), .min_common = pick(1, 8)};
  options.prefill_max_requests = pick(0, 3) == 0 ? pick(1, 3) : 0;
  options.priorities.enabled = pick(0, 2) == 0;
  options.priorities.low_values_first = pick(0, 1) == 1;
  options.priorities.preempt = pick(0, 2) != 0;
  options.priorities.preemption_threshold = pick(0, 4);
  if (pick(0, 5) == 0) options.max_queued_requests = pick(1, 6);
  if (pick(0, 4) == 0) options.waiting_timeout = std::chrono::milliseconds(pick(5, 60));
  if (pick(0, 4) == 0) options.running_timeout = std::chrono::milliseconds(pick(10, 100));
  options.prefix_cache = pick(0, 4) != 0;
  options.vocab_size = kVocab;
  options.eos_ids = {kEos};
  simulated.asks = pick(0, 2) == 0;
  if (pick(0, 2) == 0) {
    options.state_tokens = 1 << pick(0, 4);
    options.num_states = 2 * options.max_running_requests + pick(0, 12);
    options.cached_state_interval = options.state_tokens * pick(1, 6);
  } else if (pick(0, 1) == 0) {
    add_windows(options, pick);
  }
  if (options.num_states == 0) options.cache_whole_answers = pick(0, 3) != 0;
  if (!options.cache_whole_answers && options.num_pages % 2 == 0)
    options.answer_begins = {TokenId{5}};
  return simulated;
}

}  // namespace hocket
