// The order of waiting requests under the policies that look at the prefix cache. Larger priority
// first, then retracted ones, then the policy:
//
//   lpm                     longest cached prefix
//   dfs_weight              depth first through the tree of their cached prefixes, the branch with
//                           most waiting requests first, longer prefixes before shorter ones
//   hrrn                    rows computed since arrival / rows of its own, highest first
//   shortest_prefill_first  fewest rows to compute
//
// In-batch sharing: a request that has little in the cache but much in common with one further up
// goes last this time, so that the first can fill the cache for it. Under every policy one whose
// beginning is being computed waits for it (Scheduler::State::prefix_is_under_way).
// Pure functions.   Thread: engine.
#pragma once

#include <cstdint>
#include <span>

#include "policy/scheduler/request.h"
#include "policy/scheduler/schedule_policy.h"

namespace hocket {

struct InBatchSharing {
  int most_cached = 32;   // goes last with at most so many cached tokens; -1: nobody waits at all
  int least_common = 32;  // tokens, not cached, in common with an earlier request
};

struct PrefixCandidate {
  Request* request = nullptr;
  int cached_len = 0;
  bool last = false;    // goes last this time
  int branch_rank = 0;  // dfs_weight: place in the tree's order

  int uncached_len() const { return static_cast<int>(request->tokens.size()) - cached_len; }
};

// Tokens at the beginning of both.
size_t common_len(std::span<const TokenId> a, std::span<const TokenId> b);

// Candidates in order of arrival; sets `last`.
void mark_in_batch_sharers(std::span<PrefixCandidate> candidates, const InBatchSharing& options);

// policy: a cache-aware one. rows_total: rows computed by the server so far.
void sort_by_prefix(SchedulePolicy policy, std::span<PrefixCandidate> candidates,
                    uint64_t rows_total);

}  // namespace hocket
