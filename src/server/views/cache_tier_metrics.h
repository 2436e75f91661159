// The metrics of the second tier of the prefix cache (--kv-cache-dir). Thread: any.
#pragma once

#include <cstdint>

#include "engine/watch/cache_tier_stats.h"
#include "server/views/metric_snapshot.h"

namespace hocket {

// All are 0 without the tier. restored_tokens: prompt tokens whose pages came back, so far. Names
// are SGLang's where it has one.
void add_cache_tier(MetricSnapshot& out, const CacheTierStats& tier, uint64_t restored_tokens);

}  // namespace hocket
