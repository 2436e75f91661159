#include "server/reports/cache_tier_metrics.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <string_view>

namespace hocket {

namespace {

// Adds counts of the same, each by its reason, also under the name that they had before.
void add_by_reason(MetricSnapshot& out, const char* name, const char* help,
                   std::span<const uint64_t> counts, std::span<const std::string_view> reasons) {
  const std::string old_help =
      MetricSnapshot::old_help((std::string("kv_store_") + name).c_str(), help);
  const auto add_as = [&](const char* prefix, const std::string& text) {
    for (size_t i = 0; i < counts.size(); ++i)
      out.counter((std::string(prefix) + name).c_str(), text.c_str(), counts[i],
                  MetricSnapshot::Label{"reason", std::string(reasons[i])});
  };
  add_as("kv_store_", help);
  add_as("kv_file_", old_help);
}

}  // namespace

void add_cache_tier(MetricSnapshot& out, const CacheTierStats& tier, uint64_t restored_tokens) {
  out.counters_by("tier", kPageTierNames, kPageTierCounters,
                  [&](size_t i) -> const PageTierCounters& { return tier.tiers[i]; });
  const auto add_unavailable = [&](const char* name, const std::string& help) {
    for (size_t i = 0; i < tier.tiers.size(); ++i)
      out.gauge(name, help.c_str(), tier.tiers[i].away ? 1 : 0,
                {"tier", std::string(kPageTierNames[i])});
  };
  const char* help = "1 while the tier is not used because it failed";
  add_unavailable("kv_tier_unavailable", help);
  add_unavailable("kv_tier_away", MetricSnapshot::old_help("kv_tier_unavailable", help));
  out.counter("prefetched_tokens_total", "Prompt tokens whose pages were read from stores or peers",
              restored_tokens);
  add_by_reason(out, "left_out_pages_total",
                "KV pages and states that were not written to a store, by reason",
                tier.left_out_total, kUnwrittenReasonNames);
  add_by_reason(out, "not_read_prompts_total",
                "Prompts that were computed without reading their pages, by reason",
                tier.not_read_total, kUnreadReasonNames);
  out.counters<CacheTierCounters>(kCacheTierCounters, tier);
  out.counters<PeerCounters>(kPeerCounters, tier);
  out.counters<ServedCounters>(kServedCounters, tier);
  out.gauge("num_prefill_inflight_queue_reqs", "Prompts that are computed for peers now",
            tier.num_prefills);
  out.gauge("kv_files", "KV pages in files", static_cast<double>(tier.files));
  out.gauge("kv_file_bytes", "Bytes of the files that hold KV pages",
            static_cast<double>(tier.bytes));
}

void add_page_waits(MetricSnapshot& out, const RankStats& engine) {
  const ByPageWait<int> waiting = engine.tier ? engine.tier->num_waiting : ByPageWait<int>{};
  // Both are read at slightly different times.
  const int num_others =
      std::max(engine.scheduler.num_held - std::reduce(waiting.begin(), waiting.end()), 0);
  const auto num_of = [&](PageWait why) { return waiting[static_cast<size_t>(why)]; };
  out.gauge("num_grammar_queue_reqs", "Requests whose grammar is not ready", num_others);
  out.gauge("num_prefix_fetch_reqs", "Requests whose pages are read from a store or a peer",
            num_of(PageWait::store));
  out.gauge("num_decode_prealloc_queue_reqs",
            "Requests that a peer may compute when the pool has room for their pages",
            num_of(PageWait::room));
  out.gauge("num_decode_transfer_queue_reqs", "Requests that a peer computes, and whose pages come",
            num_of(PageWait::peer));
}

uint64_t num_fetched_tokens(const RankStats& engine) {
  return std::reduce(engine.fetched_tokens_total.begin(), engine.fetched_tokens_total.end(),
                     uint64_t{0});
}

void add_cached_tokens(MetricSnapshot& out, const RankStats& engine) {
  const auto add = [&](uint64_t tokens, std::string source) {
    out.counter("cached_tokens_total",
                "Prompt tokens that were not computed again: they were in memory, or came back "
                "from a store",
                tokens, MetricSnapshot::Label{"cache_source", std::move(source)});
  };
  add(engine.scheduler.cached_tokens_total - num_fetched_tokens(engine), "device");
  for (size_t i = 0; i < engine.fetched_tokens_total.size(); ++i)
    add(engine.fetched_tokens_total[i], fmt::format("storage_{}", kPageTierNames[i]));
}

}  // namespace hocket
