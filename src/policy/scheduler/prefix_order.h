// Sorts waiting requests under the policies that look at the prefix cache. Larger priority is
// first, then retracted requests, then the policy decides:
//
//   lpm                     longest cached prefix
//   dfs_weight              depth first through the tree of their cached prefixes, the branch with
//                           most waiting requests first, longer prefixes before shorter ones
//   hrrn                    rows computed since its arrival / its own uncached rows, highest first
//   shortest_prefill_first  fewest rows to compute
//
// In-batch sharing: a request with few cached tokens but many in common with an earlier one is
// last in this pass, so that the earlier one can fill the cache for it. Under every policy, a
// request whose beginning is being computed waits for it (PrefillPass::prefix_is_under_way).
// Pure functions.   Thread: engine.
#pragma once

#include <cstdint>
#include <span>

#include "policy/scheduler/request.h"
#include "policy/scheduler/schedule_policy.h"

namespace hocket {

struct InBatchSharing {
  int max_cached = 32;  // a request with more cached tokens is never last; -1: none does
  int min_common = 32;  // tokens in common with an earlier request that make it go last
};

struct PrefixCandidate {
  Request* request = nullptr;
  int cached_len = 0;
  bool last = false;        // true: is last in this pass
  int branch_position = 0;  // for dfs_weight: position in the tree's order

  int uncached_len() const { return static_cast<int>(request->tokens.size()) - cached_len; }
};

// Sets `last` in each candidate. They must be in order of arrival.
void mark_in_batch_sharers(std::span<PrefixCandidate> candidates, const InBatchSharing& options);

// Sorts candidates by a cache-aware policy. rows_total: rows computed by the server so far.
void sort_by_prefix(SchedulePolicy policy, std::span<PrefixCandidate> candidates,
                    uint64_t rows_total);

}  // namespace hocket
