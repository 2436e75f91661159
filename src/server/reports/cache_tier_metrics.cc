#include "server/reports/cache_tier_metrics.h"

#include <algorithm>
#include <numeric>

namespace hocket {

namespace {

// Adds a tier by its name: {tier="file"}, "redis", "peer"; zeros where there is none.
void add_page_tier(MetricSnapshot& out, std::string_view name, const PageTierStats& tier) {
  const auto label = [&] { return MetricSnapshot::Label{"tier", std::string(name)}; };
  out.counter("kv_tier_tokens_total", "Prompt tokens whose pages were read from the tier",
              tier.tokens_total, label());
  out.counter("kv_tier_read_pages_total", "KV pages read from the tier", tier.pages_read_total,
              label());
  out.counter("kv_tier_read_bytes_total", "Bytes of pages and states read from the tier",
              tier.read_bytes_total, label());
  out.counter("kv_tier_read_seconds_total", "Time spent reading from the tier",
              tier.read_seconds_total, label());
  out.counter("kv_tier_saved_seconds_total",
              "Time that computing the tokens from the tier would have taken",
              tier.saved_seconds_total, label());
  out.counter("kv_tier_written_pages_total", "KV pages and states written to the tier",
              tier.pages_written_total, label());
  out.counter("kv_tier_damaged_pages_total",
              "Damaged pages that were found in the tier and deleted", tier.damaged_total, label());
  out.counter("kv_tier_failures_total", "Times that the tier failed and was left alone for a while",
              tier.failures_total, label());
  out.gauge("kv_tier_away", "1 while the tier is left alone because it failed", tier.away ? 1 : 0,
            label());
}

// Adds the counts that all stores and peers share. The names begin with `prefix`, the texts with
// `note`.
void add_stored_pages(MetricSnapshot& out, std::string_view prefix, std::string_view note,
                      const CacheTierStats& tier) {
  const auto add = [&](std::string_view name, std::string_view help, auto value, auto... label) {
    out.counter(fmt::format("{}_{}", prefix, name).c_str(), fmt::format("{}{}", note, help).c_str(),
                value, std::move(label)...);
  };
  const auto reason = [](std::string_view name) {
    return MetricSnapshot::Label{"reason", std::string(name)};
  };
  for (size_t i = 0; i < tier.left_out_total.size(); ++i)
    add("left_out_pages_total", "KV pages and states that were not written to a store, by reason",
        tier.left_out_total[i], reason(kUnwrittenReasonNames[i]));
  add("read_pages_total", "KV pages read from stores or peers", tier.pages_read_total);
  for (size_t i = 0; i < tier.not_read_total.size(); ++i)
    add("not_read_prompts_total",
        "Prompts that were computed without reading their pages, by reason", tier.not_read_total[i],
        reason(kUnreadReasonNames[i]));
  add("reads_given_up_total", "Prompts that were computed because reading took longer",
      tier.reads_given_up_total);
  add("read_seconds_total", "Time spent reading KV pages from stores or peers",
      tier.read_seconds_total);
  add("damaged_pages_total", "Stored pages that were damaged and deleted", tier.damaged_total);
}

}  // namespace

void add_cache_tier(MetricSnapshot& out, const CacheTierStats& tier, uint64_t restored_tokens) {
  for (size_t i = 0; i < tier.tiers.size(); ++i)
    add_page_tier(out, kPageTierNames[i], tier.tiers[i]);
  out.counter("prefetched_tokens_total", "Prompt tokens whose pages were read from stores or peers",
              restored_tokens);
  out.counter("backuped_pages_total", "KV pages and states written to stores",
              tier.pages_written_total);
  add_stored_pages(out, "kv_store", "", tier);
  add_stored_pages(out, "kv_file", "Old name of kv_store_*, which the next version lacks. ", tier);
  out.counter("kv_file_evicted_pages_total", "Files deleted because the folder was full",
              tier.evicted_total);
  out.counter("kv_peer_pages_total", "KV pages and states got from peers", tier.peer_pages_total);
  out.counter("kv_peer_prefills_total", "Prompts that peers took to compute",
              tier.peer_prefills_total);
  out.counter("kv_peer_failures_total", "Failures of peers, each left alone for a while",
              tier.peer_failures_total);
  out.counter("kv_served_pages_total", "KV pages and states given to peers",
              tier.served_pages_total);
  out.counter("kv_served_prefills_total", "Prompts computed for peers", tier.served_prefills_total);
  out.counter("kv_served_refused_total", "Peers' connections and prompts that were refused",
              tier.served_refused_total);
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
