// The buffers between the prefix cache of a rank and its stores and peers (engine/cache_tier.h):
// pages and records on their way in, and as many on their way out. A record is what a model needs
// beside pages to go on behind them (engine/border_states.h). Pure values.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/server_settings.h"

namespace hocket {

struct TierBuffers {
  static constexpr int64_t kBytes = 64 << 20;  // pages one way, and records one way
  // Few large ones take more than kBytes, so that one is filled while others travel.
  static constexpr int64_t kMinPages = 4, kMaxPages = 1024;
  static constexpr int64_t kMinRecords = 2, kMaxRecords = 64;

  int64_t page_bytes = 0;
  int64_t record_bytes = 0;              // 0: the model has none
  int64_t record_budget_bytes = kBytes;  // for the records one way

  // Numbers of buffers one way. Models without records have buffers of a byte.
  int64_t num_pages() const { return std::clamp(kBytes / page_bytes, kMinPages, kMaxPages); }
  int64_t num_records() const {
    return std::clamp(record_budget_bytes / std::max<int64_t>(record_bytes, 1), kMinRecords,
                      kMaxRecords);
  }
  int64_t of_pages() const { return num_pages() * page_bytes; }
  int64_t of_records() const { return num_records() * std::max<int64_t>(record_bytes, 1); }
  // Returns the size of all, both ways.
  int64_t bytes() const { return 2 * (of_pages() + of_records()); }
};

// Returns the most pages that a window can have if it ends at a border of pages.
constexpr int window_record_pages(int window_tokens, int page_tokens) {
  return (window_tokens - 1 + page_tokens - 1) / page_tokens;
}

// Returns true if the settings name stores or peers.
inline bool has_cache_tier(const ServerSettings& settings) {
  return !settings.memory.kv_cache_dir.empty() || !settings.memory.kv_cache_store.empty() ||
         !settings.peers.kv_cache_peers.empty() ||
         !settings.peers.disaggregation_prefill_url.empty();
}

}  // namespace hocket
