// Counts of the second tier of the prefix cache (engine/tier/cache_tier.h), as copies. A new
// counter is a member and its row, and the code that counts it.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>

#include "core/named_counter.h"
#include "engine/stats/page_tier.h"
#include "engine/stats/page_waits.h"
#include "engine/stats/unwritten_reasons.h"

namespace hocket {

// Counts of one place from which pages are read.
struct PageTierCounters {
  uint64_t pages_written_total = 0, pages_read_total = 0;
  uint64_t read_bytes_total = 0;  // those of pages and states
  uint64_t tokens_total = 0;      // tokens that requests began with, read from there for them
  uint64_t damaged_total = 0, failures_total = 0;
  double read_seconds_total = 0;
  // The time that computing these tokens would have taken, as measured, without those that a peer
  // computed for their request.
  double saved_seconds_total = 0;
};

inline constexpr auto kPageTierCounters = std::to_array<NamedCounter<PageTierCounters>>(
    {{.value = &PageTierCounters::tokens_total,
      .name = "kv_tier_tokens_total",
      .help = "Prompt tokens that requests began with, read from the tier for them",
      .key = "tokens_total"},
     {&PageTierCounters::pages_read_total, "kv_tier_read_pages_total",
      "KV pages read from the tier"},
     {.value = &PageTierCounters::read_bytes_total,
      .name = "kv_tier_read_bytes_total",
      .help = "Bytes of pages and states read from the tier",
      .key = "read_bytes_total"},
     {&PageTierCounters::read_seconds_total, "kv_tier_read_seconds_total",
      "Time spent reading from the tier"},
     {.value = &PageTierCounters::saved_seconds_total,
      .name = "kv_tier_saved_seconds_total",
      .help = "Time that computing these tokens would have taken, those of prefill peers aside",
      .key = "saved_seconds_total"},
     {&PageTierCounters::pages_written_total, "kv_tier_written_pages_total",
      "KV pages and states written to the tier"},
     {.value = &PageTierCounters::damaged_total,
      .name = "kv_tier_damaged_pages_total",
      .help = "Damaged pages that were found in the tier and deleted",
      .is_shared = true},
     {.value = &PageTierCounters::failures_total,
      .name = "kv_tier_failures_total",
      .help = "Times that the tier failed and was left alone for a while",
      .is_shared = true}});
static_assert(names_each_member(kPageTierCounters));

struct PageTierStats : PageTierCounters {
  bool exists = false;  // pages are looked for there
  bool away = false;    // it failed, and is not used for now
};

// Counts of all tiers together.
struct CacheTierCounters {
  uint64_t pages_written_total = 0, pages_read_total = 0, damaged_total = 0;
  uint64_t reads_given_up_total = 0;  // requests that continued before all pages were read
  uint64_t evicted_total = 0;         // files deleted because the folder was full
  double read_seconds_total = 0;
};

inline constexpr auto kCacheTierCounters = std::to_array<NamedCounter<CacheTierCounters>>(
    {{&CacheTierCounters::pages_written_total, "backuped_pages_total",
      "KV pages and states written to stores"},
     {.value = &CacheTierCounters::pages_read_total,
      .name = "kv_store_read_pages_total",
      .help = "KV pages read from stores or peers",
      .old_name = "kv_file_read_pages_total"},
     {.value = &CacheTierCounters::reads_given_up_total,
      .name = "kv_store_reads_given_up_total",
      .help = "Prompts that were computed because reading took longer",
      .old_name = "kv_file_reads_given_up_total"},
     {.value = &CacheTierCounters::read_seconds_total,
      .name = "kv_store_read_seconds_total",
      .help = "Time spent reading KV pages from stores or peers",
      .old_name = "kv_file_read_seconds_total"},
     {.value = &CacheTierCounters::damaged_total,
      .name = "kv_store_damaged_pages_total",
      .help = "Stored pages that were damaged and deleted",
      .old_name = "kv_file_damaged_pages_total",
      .is_shared = true},
     {.value = &CacheTierCounters::evicted_total,
      .name = "kv_file_evicted_pages_total",
      .help = "Files deleted because the folder was full",
      .is_shared = true}});
static_assert(names_each_member(kCacheTierCounters));

// Counts of the peers that are asked.
struct PeerCounters {
  uint64_t peer_pages_total = 0, peer_prefills_total = 0, peer_failures_total = 0;
  uint64_t peer_refusals_total = 0;       // no connection was free, or the prompt was not taken
  uint64_t peer_short_prompts_total = 0;  // taken, but some of their pages or states never came
};

inline constexpr auto kPeerCounters = std::to_array<NamedCounter<PeerCounters>>(
    {{.value = &PeerCounters::peer_pages_total,
      .name = "kv_peer_pages_total",
      .help = "KV pages and states got from peers",
      .is_shared = true},
     {.value = &PeerCounters::peer_prefills_total,
      .name = "kv_peer_prefills_total",
      .help = "Prompts that peers took to compute",
      .is_shared = true},
     {.value = &PeerCounters::peer_failures_total,
      .name = "kv_peer_failures_total",
      .help = "Failures of peers, each left alone for a while",
      .is_shared = true},
     {.value = &PeerCounters::peer_refusals_total,
      .name = "kv_peer_refusals_total",
      .help = "Times a peer had no free connection, or did not take a prompt",
      .is_shared = true},
     {.value = &PeerCounters::peer_short_prompts_total,
      .name = "kv_peer_short_prompts_total",
      .help = "Prompts that a peer took to compute, and whose pages it did not all have at the end",
      .is_shared = true}});
static_assert(names_each_member(kPeerCounters));

// Counts of what peers got from here.
struct ServedCounters {
  uint64_t served_pages_total = 0, served_prefills_total = 0, served_refused_total = 0;
};

inline constexpr auto kServedCounters = std::to_array<NamedCounter<ServedCounters>>(
    {{.value = &ServedCounters::served_pages_total,
      .name = "kv_served_pages_total",
      .help = "KV pages and states given to peers",
      .is_shared = true},
     {.value = &ServedCounters::served_prefills_total,
      .name = "kv_served_prefills_total",
      .help = "Prompts computed for peers",
      .is_shared = true},
     {.value = &ServedCounters::served_refused_total,
      .name = "kv_served_refused_total",
      .help = "Peers' connections and prompts that were refused",
      .is_shared = true}});
static_assert(names_each_member(kServedCounters));

struct CacheTierStats : CacheTierCounters, PeerCounters, ServedCounters {
  PerTier<PageTierStats> tiers;
  // Pages and states that were not written, and prompts whose pages were not read, by reason.
  ByUnwrittenReason<uint64_t> left_out_total{};
  ByUnreadReason<uint64_t> not_read_total{};
  ByPageWait<int> num_waiting{};  // requests that are held now, by reason
  // Sizes of the folder, which the ranks of a process share.
  int64_t files = 0, bytes = 0;
  int num_prefills = 0;  // prompts that the process computes for peers now

  uint64_t num_left_out() const {
    return std::accumulate(left_out_total.begin(), left_out_total.end(), uint64_t{0});
  }
  uint64_t left_out(UnwrittenReason why) const { return left_out_total[static_cast<size_t>(why)]; }
};

}  // namespace hocket
