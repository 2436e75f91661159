// Says how often each kind of event must happen in 1,500 seeds of the simulation: events that never
// happened were not tested. For tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "policy/scheduler/batch.h"

namespace hocket {

inline constexpr std::pair<std::string_view, uint64_t> kMinIn1500[] = {
    {"retracted", 100},
    {"preempted", 100},
    {"timed_out", 100},
    {"displaced", 100},
    {"copied", 1500},
    {"evicted", 20000},
    {"forced", 10000},
    {"cut", 1000},
    {"held", 2000},
    {"broken", 100},
    {"idle_steps", 1000},
    {"closed", 500},
    {"prefix_waits", 200},
    {"from_states", 400},
    {"evicted_states", 300},
    {"from_windows", 500},
    {"evicted_windows", 1000},
    {"drafted", 5000},
    {"accepted_drafts", 2000},
    {"drafted_overlapped", 2000},
    {"drafted_states", 1000},
    {"drafted_windows", 500},
    {"drafted_mixed", 500},
    {"ended_drafts", 200},
    {"aborted_drafts", 20},
    {"restored", 10000},
    {"tier_held", 1000},
    {"tier_pages", 2000},
    {"tier_states", 200},
    {"tier_windows", 200},
    {"tier_evicted", 1000},
    {"tier_damaged", 20},
    {"tier_given_up", 50},
    {"tier_no_room", 20},
    {"put_back", 3000},
    {"undone_in_flight", 200},
};

// Returns how many rows of the prompt the slice reports on.
inline int num_reports(const Slice& slice) {
  return std::min(slice.begin + slice.len, slice.request->prompt_len - 1) - slice.logprobs_from;
}

struct SeedRange {
  uint64_t first = 0, count = 0;
};

inline constexpr uint64_t kUsualSeeds = 1500;

// Returns the seeds of `./hocket test simulation --first-seed F --seeds N`; without N, `count`. A
// story whose seeds take longer has a smaller `count`, and the same share of N, but one at least.
inline SeedRange seeds_wanted(uint64_t count = kUsualSeeds) {
  SeedRange seeds{.count = count};
  if (const char* first = std::getenv("HOCKET_SIMULATION_FIRST_SEED"); first != nullptr)
    seeds.first = std::strtoull(first, nullptr, 10);
  if (const char* given = std::getenv("HOCKET_SIMULATION_SEEDS"); given != nullptr)
    seeds.count = std::max<uint64_t>(1, std::strtoull(given, nullptr, 10) * count / kUsualSeeds);
  return seeds;
}

}  // namespace hocket
