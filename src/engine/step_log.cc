#include "engine/step_log.h"

#include "base/log.h"

namespace hocket {

void StepLog::note(const Batch& batch, const SchedulerStats& stats, TimePoint now, Duration took) {
  int new_sequences = 0, new_tokens = 0, sampled = 0;
  int64_t cached = 0;
  for (const Slice& slice : batch.slices) {
    if (slice.samples) ++sampled;
    if (batch.mode == ForwardMode::decode || slice.len == 1) continue;
    ++new_sequences;
    new_tokens += slice.len;
    // A request's cache hit is told once, with its first chunk.
    if (slice.begin == slice.request->cached_len) cached += slice.request->cached_len;
  }
  if (window_begin_ == TimePoint{}) window_begin_ = now - took;
  window_tokens_ += sampled;
  if (const double seconds = to_seconds(now - window_begin_); seconds >= 1.0) {
    gen_throughput_ = static_cast<double>(window_tokens_) / seconds;
    window_tokens_ = 0;
    window_begin_ = now;
  }

  if (new_sequences > 0) {
    log::info(
        "Prefill batch, #new-seq: {}, #new-token: {}, #cached-token: {}, token usage: {:.2f}, "
        "#running-req: {}, #queue-req: {}, input throughput (token/s): {:.2f}",
        new_sequences, new_tokens, cached, stats.token_usage, stats.num_running, stats.num_waiting,
        new_tokens / std::max(to_seconds(took), 1e-9));
  } else if (++decode_steps_ % kDecodeLogInterval == 0) {
    log::info(
        "Decode batch, #running-req: {}, #token: {}, token usage: {:.2f}, "
        "gen throughput (token/s): {:.2f}, #queue-req: {}",
        stats.num_running, stats.num_used_tokens, stats.token_usage, gen_throughput_,
        stats.num_waiting);
  }
}

}  // namespace hocket
