// Counts how much was read from where, and the prompts that continued without their pages. Says so
// in the log the first time. Owner: the rank's CacheTier. Thread: any.
#pragma once

#include <atomic>
#include <optional>

#include "base/clock.h"
#include "engine/stats/cache_tier_stats.h"

namespace hocket {

struct ReadFigures {
  PerTier<AtomicCounts<PageTierCounters>> tiers;
  std::atomic<uint64_t> num_given_up{0};  // requests that continued before all was read
  ByUnreadReason<std::atomic<uint64_t>> num_not_read{};
  std::atomic<bool> held_too_long{false};  // a prompt was
  ByPageWait<std::atomic<int>> num_waiting{};

  // Counts a prompt whose pages are not read. max_prompts: how many may wait for their pages.
  void note_not_read(UnreadReason why, size_t max_prompts);
  // A prompt has waited for its pages as long as one may. limit: without the time that a peer may
  // compute.
  void note_held_too_long(Duration limit, bool is_sent);
  // A request that waited for `before` waits for `now`; nullopt: for no pages.
  void note_wait(std::optional<PageWait> before, std::optional<PageWait> now);
  // Sets the counts of each tier. PageWriter::add_to sets those of writing and must come after it.
  void add_to(CacheTierStats& stats) const;
};

}  // namespace hocket
