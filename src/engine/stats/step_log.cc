#include "engine/stats/step_log.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "policy/scheduler/draft_figures.h"

namespace hocket {
namespace {

// Returns an empty text if no rows were sent.
LogPart overlap_text(const StepTransfers& t) {
  LogPart out;
  const double all = to_seconds(t.hidden) + to_seconds(t.exposed);
  if (all > 0)
    out.print(", overlap: {}{:.0f} %", t.hidden_is_bound ? "at most " : "",
              100 * to_seconds(t.hidden) / all);
  return out;
}

// Returns the share of all prompt tokens so far that were in the cache.
double cache_hit_rate(const SchedulerStats& stats) {
  return static_cast<double>(stats.cached_tokens_total) /
         static_cast<double>(std::max<uint64_t>(stats.prompt_tokens_total, 1));
}

}  // namespace

void StepLog::Rate::add(uint64_t more_tokens, double more_seconds) {
  tokens += more_tokens;
  seconds += more_seconds;
}

double StepLog::Rate::take() {
  last = static_cast<double>(tokens) / std::max(seconds, 1e-9);
  tokens = 0;
  seconds = 0;
  return last;
}

void StepLog::count(const Batch& batch) {
  ++(batch.mode == ForwardMode::decode  ? counts_.num_decode
     : batch.mode == ForwardMode::idle  ? counts_.num_idle
     : batch.mode == ForwardMode::mixed ? counts_.num_mixed
                                        : counts_.num_prefill);
  if (batch.overlapped) ++counts_.num_overlapped;
  counts_.prefill_compute_tokens +=
      static_cast<uint64_t>(batch.num_rows - batch.num_decode_rows_total());
  counts_.prefill_cache_tokens += static_cast<uint64_t>(batch.cached_tokens);
  counts_.decode_tokens += static_cast<uint64_t>(batch.num_decode_rows_total());
}

LogPart StepLog::take_drafts_text(const SchedulerStats& stats) {
  const Drafts all{stats.num_verified_total, num_drafts_of(stats), num_held_of(stats)};
  const Drafts logged = std::exchange(drafts_logged_, all);
  LogPart out;
  if (all.verified == logged.verified) return out;
  const uint64_t accepted = all.accepted - logged.accepted;
  out.print("accept len: {:.2f}, accept rate: {:.2f}, ",
            accept_length(accepted, all.verified - logged.verified),
            static_cast<double>(accepted) / static_cast<double>(all.drafts - logged.drafts));
  return out;
}

void StepLog::line_printed(const SchedulerStats& stats) {
  const uint64_t logged = std::exchange(retracted_logged_, stats.num_retracted_total);
  counts_.num_retracted_lately = static_cast<int>(stats.num_retracted_total - logged);
}

void StepLog::note(const Batch& batch, const SchedulerStats& stats, TimePoint now, Duration took,
                   std::optional<StepTransfers> transfers) {
  count(batch);
  if (batch.mode == ForwardMode::idle) return;
  uint64_t num_tokens = 0;
  for (const Slice& slice : batch.slices)
    num_tokens += static_cast<uint64_t>(slice.num_appended + slice.num_forced);
  const Duration passed = last_end_ == TimePoint{} ? took : now - last_end_;
  const int new_tokens = batch.num_rows - batch.num_decode_rows_total();
  lately_.add(num_tokens, to_seconds(passed));
  input_lately_.add(static_cast<uint64_t>(new_tokens), to_seconds(passed));
  since_line_.add(num_tokens, to_seconds(passed));
  if (lately_.seconds >= 1) {
    lately_.take();
    input_lately_.take();
  }
  const bool pause = stats.num_running == 0 && stats.num_waiting == 0;
  last_end_ = pause ? TimePoint{} : now;

  if (new_tokens > 0) {
    log::info(
        "{}Prefill batch, #new-seq: {}, #new-token: {}, #cached-token: {}, token usage: {:.2f}, "
        "#running-req: {}, #queue-req: {}, #pending-token: {}, cuda graph: False, "
        "input throughput (token/s): {:.2f}, cache hit rate: {:.2f}%{}",
        prefix_, std::ssize(batch.slices) - batch.num_answers(), new_tokens, batch.cached_tokens,
        stats.token_usage, batch.num_running, batch.num_waiting, batch.pending_tokens,
        new_tokens / std::max(to_seconds(took), 1e-9), 100 * cache_hit_rate(stats),
        overlap_text(transfers.value_or(StepTransfers{})).view());
    line_printed(stats);
  }
  if (batch.num_answers() > 0 && transfers) {
    transfers_since_line_.hidden += transfers->hidden;
    transfers_since_line_.exposed += transfers->exposed;
    transfers_since_line_.hidden_is_bound |= transfers->hidden_is_bound;
  }
  if (batch.num_answers() > 0 && ++decode_steps_ >= decode_interval_) {
    decode_steps_ = 0;
    log::info(
        "{}Decode batch, #running-req: {}, #token: {}, token usage: {:.2f}, {}cuda graph: False, "
        "gen throughput (token/s): {:.2f}, #queue-req: {}{}",
        prefix_, batch.num_answers(), stats.num_used_tokens, stats.token_usage,
        take_drafts_text(stats).view(), since_line_.take(), batch.num_waiting,
        overlap_text(std::exchange(transfers_since_line_, {})).view());
    line_printed(stats);
  }
}

}  // namespace hocket
