// The buffers between the prefix cache of a rank and its stores and peers
// (engine/tier/cache_tier.h): pages and records on their way in, and as many on their way out; and
// those of pages that peers get from files. A record is the state that a model needs beside pages
// to continue behind them (engine/tier/border_states.h). Pure values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/server_settings.h"

namespace hocket {

// Keys of pages that are remembered as being in a Redis, twice as many at most
// (engine/pages/redis_store.h).
inline constexpr int64_t kMaxKnownKeys = 64 << 10;

struct TierBuffers {
  static constexpr int64_t kBytes = 64 << 20;  // pages one way, and records one way
  // The pages of a prompt's chunk, which become known at once, all find a buffer up to this size.
  static constexpr int64_t kMaxChunkBytes = int64_t{1} << 30;
  // There are at least kMinPages, even if they take more than kBytes, so that one is filled while
  // others travel; and at most kMaxPages, which bounds the queues.
  static constexpr int64_t kMinPages = 4, kMaxPages = 1024;
  static constexpr int64_t kMinRecords = 2, kMaxRecords = 64;
  // Pages or records that are read from files for peers at a time (engine/pages/page_server.h).
  static constexpr int64_t kMinServed = 4, kMaxServed = 64;
  // Threads of a rank that read, if some of its sources are networks (engine/pages/page_reader.h);
  // files alone have one.
  static constexpr int64_t kReaders = 4;
  // Pages of a prompt that one of them reads from files at once: while one is checked, the next one
  // comes from the disk (engine/pages/file_store.h).
  static constexpr int64_t kReadAtOnce = 2;
  // Threads that wait for prompts which peers compute, two for each peer: one prompt is computed
  // there while the next one waits in line.
  static constexpr int64_t kMinSenders = 4, kMaxSenders = 16;

  int64_t page_bytes = 0;
  int64_t record_bytes = 0;              // 0: the model has none
  int64_t record_budget_bytes = kBytes;  // for the records one way
  int64_t chunk_pages = 0;               // that a chunk can fill; 0: prompts are never cut
  // Size of a page and of a record of windows at a peer, in the largest pages that it may have; 0:
  // there are no peers. Each thread that reads has both (engine/pages/regrouped_pages.h).
  int64_t peer_bytes = 0;
  // Each of these threads holds a page while it waits, so there are as many more on their way in.
  int64_t num_senders = 0;
  bool has_files = false, has_redis = false;  // the stores that the rank has

  // Numbers of buffers one way. Models without records have buffers of a byte.
  int64_t num_pages() const {
    const int64_t of_chunk = std::min(chunk_pages, kMaxChunkBytes / page_bytes);
    return std::clamp(std::max(kBytes / page_bytes, of_chunk), kMinPages, kMaxPages);
  }
  int64_t num_records() const {
    return std::clamp(record_budget_bytes / std::max<int64_t>(record_bytes, 1), kMinRecords,
                      kMaxRecords);
  }
  int64_t of_pages() const { return num_pages() * page_bytes; }
  int64_t of_records() const { return num_records() * std::max<int64_t>(record_bytes, 1); }
  int64_t num_readers() const { return has_redis || peer_bytes > 0 ? kReaders : 1; }
  // Returns how many pages or records the threads that read and write stores hold beside buffers.
  int64_t num_copies() const {
    if (!has_files && !has_redis) return 0;
    // A call that reads a file owns its bytes (engine/pages/file_store.h), and so does a value that
    // comes from a Redis; a call that writes a file does, too.
    const int64_t read = num_readers() * (has_files ? kReadAtOnce : 1);
    const int64_t written_to_files = has_files ? 1 : 0;
    if (!has_redis) return read + written_to_files;
    // A value that is sent is there as a command, too; each connection, one for each thread that
    // reads or writes, keeps the memory of its largest value.
    const int64_t sent_to_redis = 2, kept_by_connections = num_readers() + 1;
    return read + written_to_files + sent_to_redis + kept_by_connections;
  }
  int64_t largest_bytes() const { return std::max(page_bytes, record_bytes); }
  // Returns the size of all, both ways. Copies count with the larger size: an upper bound where
  // only pages are written.
  int64_t bytes() const {
    return 2 * (of_pages() + of_records()) + num_senders * page_bytes +
           (kReaders + num_senders) * peer_bytes + num_copies() * largest_bytes();
  }
  // Buffers of a process that offers pages to peers: how many, and the size of all. The call that
  // reads a file has a copy of its own.
  int64_t num_served() const {
    return std::clamp(kBytes / largest_bytes(), kMinServed, kMaxServed);
  }
  int64_t served_bytes() const { return 2 * num_served() * largest_bytes(); }
};

// Returns how many pages become whole by a chunk of a prompt, which may begin inside a page.
constexpr int64_t chunk_pages(int chunk_tokens, int max_prefill_tokens, int page_tokens) {
  return chunk_tokens < 0 ? 0 : std::min(chunk_tokens, max_prefill_tokens) / page_tokens + 1;
}

// Returns the most pages that a window can have if it ends at a border of pages.
constexpr int window_record_pages(int window_tokens, int page_tokens) {
  return (window_tokens - 1 + page_tokens - 1) / page_tokens;
}

// Returns how many ranks share what a process has once, such as its folder: those in one process.
inline int num_sharing_ranks(const ParallelSettings& parallel) {
  const bool has_processes = parallel.nnodes > 0 || parallel.ranks_per_node > 0;
  return has_processes ? 1 : parallel.ep_size;
}

inline bool has_peers(const ServerSettings& settings) {
  return !settings.peers.kv_cache_peers.empty() ||
         !settings.peers.disaggregation_prefill_url.empty();
}

// Returns TierBuffers::num_senders, by the number of peers that compute.
inline int64_t num_senders(const ServerSettings& settings) {
  const std::string& peers = settings.peers.disaggregation_prefill_url;
  if (peers.empty()) return 0;
  const int64_t num_peers = 1 + std::ranges::count(peers, ',');
  return std::clamp(2 * num_peers, TierBuffers::kMinSenders, TierBuffers::kMaxSenders);
}

// Returns true if the settings name stores or peers.
inline bool has_cache_tier(const ServerSettings& settings) {
  return !settings.memory.kv_cache_dir.empty() || !settings.memory.kv_cache_store.empty() ||
         has_peers(settings);
}

}  // namespace hocket
