// Counts of the second tier of the prefix cache (engine/cache_tier.h), as copies.
#pragma once

#include <cstdint>
#include <numeric>

#include "engine/stats/page_tier.h"
#include "engine/stats/page_waits.h"
#include "engine/stats/unwritten_reasons.h"

namespace hocket {

// One place from which pages are read. Failures and damaged pages are the same for all ranks of a
// process.
struct PageTierStats {
  bool exists = false;  // pages are looked for there
  bool away = false;    // it failed, and is not used for now
  uint64_t pages_written_total = 0, pages_read_total = 0;
  uint64_t read_bytes_total = 0;  // those of pages and states
  uint64_t tokens_total = 0;      // tokens of prompts whose pages were read from there
  uint64_t damaged_total = 0, failures_total = 0;
  double read_seconds_total = 0;
  double saved_seconds_total = 0;  // that computing these tokens would have taken, as measured
};

struct CacheTierStats {
  PerTier<PageTierStats> tiers;
  // Sums over the tiers.
  uint64_t pages_written_total = 0;
  ByUnwrittenReason<uint64_t>
      left_out_total{};  // pages and states that were not written, by reason
  uint64_t pages_read_total = 0;
  ByUnreadReason<uint64_t> not_read_total{};  // prompts whose pages were not read, by reason
  uint64_t reads_given_up_total = 0;          // requests that continued before all pages were read
  ByPageWait<int> num_waiting{};              // requests that are held now, by reason
  double read_seconds_total = 0;
  // Figures of all peers that are asked, which the ranks of a process share: pages from them,
  // prompts that they computed, and failures of peers.
  uint64_t peer_pages_total = 0, peer_prefills_total = 0, peer_failures_total = 0;
  // Pages that peers got from here, and prompts, also shared.
  uint64_t served_pages_total = 0, served_prefills_total = 0, served_refused_total = 0;
  // Figures of the folder, which the ranks of a process share.
  int64_t files = 0, bytes = 0;
  uint64_t evicted_total = 0, damaged_total = 0;

  uint64_t num_left_out() const {
    return std::accumulate(left_out_total.begin(), left_out_total.end(), uint64_t{0});
  }
  uint64_t left_out(UnwrittenReason why) const { return left_out_total[static_cast<size_t>(why)]; }
};

}  // namespace hocket
