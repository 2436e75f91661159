// Counts what the grammars of answers cost. Any thread counts; readers get a copy.
#pragma once

#include <atomic>
#include <cstdint>

namespace hocket {

// Counts since the start, of all ranks of this process.
struct GrammarStats {
  uint64_t num_compiled = 0, num_failed = 0, num_cancelled = 0, num_cache_hits = 0;
  uint64_t num_too_slow = 0;  // grammars that were moved from the first lane to the second
  int num_cached = 0;
  int64_t answer_bytes = 0;       // held by the matchers of answers
  double vocabulary_seconds = 0;  // time to make the trie of tokens; 0: not done yet
  double compile_seconds_total = 0;
  // Computed by `masks`; computed by the sampling.
  uint64_t num_masks_ahead = 0, num_masks_late = 0;
  double mask_seconds_total = 0;
};

struct GrammarCounts {
  std::atomic<uint64_t> num_compiled{0}, num_failed{0}, num_cancelled{0}, num_cache_hits{0};
  std::atomic<uint64_t> num_too_slow{0};
  std::atomic<int> num_cached{0};
  std::atomic<int64_t> answer_bytes{0};
  std::atomic<int64_t> vocabulary_ns{0}, compile_ns{0}, mask_ns{0};
  std::atomic<uint64_t> num_masks_ahead{0}, num_masks_late{0};

  GrammarStats read() const {
    return {.num_compiled = num_compiled,
            .num_failed = num_failed,
            .num_cancelled = num_cancelled,
            .num_cache_hits = num_cache_hits,
            .num_too_slow = num_too_slow,
            .num_cached = num_cached,
            .answer_bytes = answer_bytes,
            .vocabulary_seconds = 1e-9 * static_cast<double>(vocabulary_ns),
            .compile_seconds_total = 1e-9 * static_cast<double>(compile_ns),
            .num_masks_ahead = num_masks_ahead,
            .num_masks_late = num_masks_late,
            .mask_seconds_total = 1e-9 * static_cast<double>(mask_ns)};
  }
};

}  // namespace hocket
