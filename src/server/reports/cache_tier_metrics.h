// The metrics of the second tier of the prefix cache (--kv-cache-dir). Thread: any.
#pragma once

#include <cstdint>

#include "engine/stats/engine_stats.h"
#include "server/reports/metric_snapshot.h"

namespace hocket {

// All are 0 without the tier. restored_tokens: prompt tokens whose pages were read, so far. Names
// are SGLang's where it has one.
void add_cache_tier(MetricSnapshot& out, const CacheTierStats& tier, uint64_t restored_tokens);
// Adds the requests that are held by what they wait for: a grammar, a store, room or a peer.
void add_page_waits(MetricSnapshot& out, const RankStats& engine);
// Adds the cached tokens of prompts by the place where each prompt found them.
void add_cached_tokens(MetricSnapshot& out, const RankStats& engine);
// Returns how many of them were read from stores and peers.
uint64_t num_fetched_tokens(const RankStats& engine);

}  // namespace hocket
