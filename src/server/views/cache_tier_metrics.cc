#include "server/views/cache_tier_metrics.h"

namespace hocket {

namespace {

// Adds a tier by its name: {tier="file"}, "redis", "peer"; zeros where there is none.
void add_page_tier(MetricSnapshot& out, std::string_view name, const PageTierStats& tier) {
  const auto label = [&] { return MetricSnapshot::Label{"tier", std::string(name)}; };
  out.counter("kv_tier_tokens_total", "Prompt tokens whose pages came back from the tier",
              tier.tokens_total, label());
  out.counter("kv_tier_read_pages_total", "KV pages read from the tier", tier.pages_read_total,
              label());
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

}  // namespace

void add_cache_tier(MetricSnapshot& out, const CacheTierStats& tier, uint64_t restored_tokens) {
  for (size_t i = 0; i < tier.tiers.size(); ++i)
    add_page_tier(out, kPageTierNames[i], tier.tiers[i]);
  out.counter("prefetched_tokens_total", "Prompt tokens whose pages came back from files or peers",
              restored_tokens);
  out.counter("backuped_pages_total", "KV pages written to files", tier.pages_written_total);
  for (size_t i = 0; i < tier.left_out_total.size(); ++i)
    out.counter("kv_file_left_out_pages_total", "KV pages and states not written, by reason",
                tier.left_out_total[i],
                MetricSnapshot::Label{"reason", std::string(kLeftOutNames[i])});
  out.counter("kv_file_read_pages_total", "KV pages read from files or peers",
              tier.pages_read_total);
  for (size_t i = 0; i < tier.not_read_total.size(); ++i)
    out.counter("kv_file_not_read_prompts_total",
                "Prompts that were computed without reading their pages, by reason",
                tier.not_read_total[i],
                MetricSnapshot::Label{"reason", std::string(kNotReadNames[i])});
  out.counter("kv_file_reads_given_up_total",
              "Prompts that were computed because reading took longer", tier.reads_given_up_total);
  out.counter("kv_file_read_seconds_total", "Time spent reading KV pages from files or peers",
              tier.read_seconds_total);
  out.counter("kv_file_evicted_pages_total", "Files deleted because the folder was full",
              tier.evicted_total);
  out.counter("kv_file_damaged_pages_total", "Files deleted because they were damaged",
              tier.damaged_total);
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

}  // namespace hocket
