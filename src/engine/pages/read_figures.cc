#include "engine/pages/read_figures.h"

#include "base/log.h"

namespace hocket {

void ReadFigures::note_not_read(UnreadReason why, size_t max_prompts) {
  if (num_not_read[static_cast<size_t>(why)]++ > 0) return;
  if (why == UnreadReason::expected_slower)
    log::info(
        "stored prefixes: a prompt is computed, because reading its pages is expected to take "
        "longer; kv_store_not_read_prompts_total counts these prompts");
  if (why == UnreadReason::queue_full)
    log::warning(
        "stored prefixes: {} prompts wait for their pages, so further ones are computed; "
        "kv_store_not_read_prompts_total counts them. To fix it: a faster disk or network",
        max_prompts);
  if (why == UnreadReason::no_memory)
    log::warning(
        "stored prefixes: there was too little memory to ask for the pages of a prompt, so it is "
        "computed; kv_store_not_read_prompts_total counts these prompts. To fix it: a smaller "
        "--mem-fraction-static, or more memory");
}

void ReadFigures::note_held_too_long(Duration limit, bool is_sent) {
  if (held_too_long.exchange(true)) return;
  log::warning(
      "stored prefixes: a prompt waited for its pages as long as it may, {:.0f} s{}, and is "
      "computed here instead; kv_store_reads_given_up_total counts these prompts. To fix it: look "
      "at the store or peer that is so slow",
      to_seconds(limit), is_sent ? " and the time that a peer may compute" : "");
}

void ReadFigures::note_wait(std::optional<PageWait> before, std::optional<PageWait> now) {
  if (before == now) return;
  if (before) --num_waiting[static_cast<size_t>(*before)];
  if (now) ++num_waiting[static_cast<size_t>(*now)];
}

void ReadFigures::add_to(CacheTierStats& stats) const {
  stats.reads_given_up_total = num_given_up;
  for (size_t i = 0; i < stats.num_waiting.size(); ++i) stats.num_waiting[i] = num_waiting[i];
  for (size_t i = 0; i < stats.not_read_total.size(); ++i)
    stats.not_read_total[i] = num_not_read[i];
  for (size_t i = 0; i < stats.tiers.size(); ++i) {
    PageTierCounters& tier = stats.tiers[i];
    tier = tiers[i].read(kPageTierCounters);
    stats.pages_read_total += tier.pages_read_total;
    stats.read_seconds_total += tier.read_seconds_total;
  }
}

}  // namespace hocket
