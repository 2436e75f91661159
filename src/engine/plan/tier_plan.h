// Plans the memory of the prefix cache beside its pages: the buffers between it and its stores and
// peers (tier_buffers.h), the indexes of what stores have, and the radix tree.
#pragma once

#include <cstdint>
#include <string>

#include "core/server_settings.h"
#include "engine/plan/memory_plan.h"

namespace hocket {

// The number of files for which an index has room in any case: those of other forms may be smaller.
inline constexpr int64_t kMinIndexedFiles = 1 << 16;
// The index of more files than these takes at most this part of the memory of the ranks.
inline constexpr int64_t kPartOfIndex = 32;

// Plans tier_bytes, max_stored_files and index_bytes, without the tree. Precondition: the rows of a
// step and the budget are planned.
void plan_tier(const MemoryPlanInput& input, MemoryPlan& plan);
// Returns a further fix of a plan that does not fit, " | --kv-cache-dir-gb N", whose index is as
// small as it can be; empty if it is that already.
std::string smaller_index(const MemoryPlanInput& input, const MemoryPlan& plan);

// Returns the bytes of the tree of a cache with `pages` pages.
int64_t tree_bytes_of(const MemoryPlanInput& input, const MemoryPlan& plan, int64_t pages);

}  // namespace hocket
